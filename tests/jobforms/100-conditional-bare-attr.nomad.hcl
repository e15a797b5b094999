# Form: a condition that gives a reference without quotes, in locals, used in env
# Nomad: accepted: the text "${attr.unique.network.ip-address}"
# allostat: accepted
variable "ip" {
  type    = string
  default = ""
}
locals {
  addr = (var.ip == "") ? attr.unique.network.ip-address : var.ip
}
job "beacon" {
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
      env {
        ADDR = "http://${local.addr}:80"
      }
    }
  }
}
