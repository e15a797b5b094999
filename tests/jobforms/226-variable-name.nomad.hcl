# Form: a variable whose name begins with a digit
# Nomad: refused: Invalid variable name
# allostat: refused: `1st` is no name of a variable
variable "1st" {
  default = "a"
}
job "bell" {
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
