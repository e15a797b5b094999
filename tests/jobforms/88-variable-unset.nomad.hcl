# Form: variable "x" {} without type and default, not given a value
# Nomad: refused (unset variable)
# allostat: refused: the variable `region` has no value
variable "region" {}
job "globe" {
  region = var.region
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
    }
  }
}
