# Form: a type in quotes, as in the old Terraform
# Nomad: refused: Invalid type specification
# allostat: refused: a type stands without quotes
variable "x" {
  type    = "string"
  default = "a"
}
job "mill" {
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
