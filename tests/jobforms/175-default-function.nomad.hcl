# Form: a default that calls a function
# Nomad: refused: Function calls not allowed
# allostat: refused: a default calls no function: upper()
variable "x" {
  default = upper("a")
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
