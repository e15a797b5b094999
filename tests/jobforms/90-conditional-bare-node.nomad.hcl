# Form: conditional, template directive in a text, attribute = node.unique.name
# Nomad: accepted
# allostat: accepted
variable "fast" {
  type    = bool
  default = true
}
job "tram" {
  group "main" {
    count = var.fast ? 2 : 1
    constraint {
      attribute = node.unique.name
      operator  = "!="
      value     = "lab-9"
    }
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
      env {
        MODE = "%{ if var.fast }fast%{ else }slow%{ endif }"
      }
    }
  }
}
