# Form: a word in a `validation` that it does not have
# Nomad: refused: Unsupported argument
# allostat: refused: a validation has no `message`
variable "tag" {
  default = "1"
  validation {
    condition     = var.tag != ""
    error_message = "It is not empty."
    message       = "x"
  }
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
