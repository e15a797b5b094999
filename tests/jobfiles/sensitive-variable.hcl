# page: nomad/docs/reference/hcl2/variables
# expect: complete
variable "password" {
  type      = string
  default   = "correct-horse"
  sensitive = true
}
job "secretive" {
  type = "batch"
  group "work" {
    task "work" {
      driver = "raw_exec"
      env {
        PASSWORD = var.password
      }
      config {
        command = "/bin/sh"
        args    = ["-c", "test \"$PASSWORD\" = correct-horse"]
      }
    }
  }
}
