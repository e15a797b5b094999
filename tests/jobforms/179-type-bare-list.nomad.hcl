# Form: list without the type of its elements
# Nomad: refused: requires one argument
# allostat: refused: `list` takes the type of its elements
variable "x" {
  type    = list
  default = ["a"]
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
