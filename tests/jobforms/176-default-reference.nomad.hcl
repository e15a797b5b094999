# Form: a default that refers to a variable
# Nomad: refused: Variables not allowed
# allostat: refused: a default refers to nothing: `var`
variable "x" {
  default = "a"
}
variable "y" {
  default = "${var.x}-1"
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
