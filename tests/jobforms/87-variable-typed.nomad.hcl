# Form: variable with type list(string), number in a port and in count, description, one-line variable
# Nomad: accepted
# allostat: accepted
variable "port" {
  type    = number
  default = 18090
}
variable "dcs2" {
  type    = list(string)
  default = ["lab"]
}
job "sundial" {
  datacenters = var.dcs2
  group "main" {
    network {
      port "web" {
        static = var.port
      }
    }
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/date"
      }
    }
  }
}
