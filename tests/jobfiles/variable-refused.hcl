# page: nomad/docs/reference/hcl2/variables
# expect: refused variable
variable "replicas" {
  type    = number
  default = 0
  validation {
    condition     = var.replicas > 0
    error_message = "There must be at least one."
  }
}
job "refused" {
  type = "batch"
  group "work" {
    count = var.replicas
    task "work" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
