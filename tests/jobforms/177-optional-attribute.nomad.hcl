# Form: optional() in the type of a variable
# Nomad: refused
# allostat: refused: Nomad has no `optional` attributes
variable "x" {
  type    = object({ a = optional(string) })
  default = {}
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
