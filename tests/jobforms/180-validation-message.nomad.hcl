# Form: a validation whose message is no sentence
# Nomad: refused: Invalid validation error message
# allostat: refused: an `error_message` is a whole sentence
variable "x" {
  default = "a"
  validation {
    condition     = length(var.x) > 0
    error_message = "must not be empty"
  }
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
