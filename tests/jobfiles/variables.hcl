# page: nomad/docs/reference/hcl2/variables
# expect: complete
variable "sizes" {
  type    = list(number)
  default = [1, 2]
  validation {
    condition     = length(var.sizes) > 0
    error_message = "There must be a size."
  }
}
variable "labels" {
  type = map(string)
  default = {
    tier = "web"
  }
}
job "sized" {
  type = "batch"
  group "work" {
    task "work" {
      driver = "raw_exec"
      env {
        SIZES = join(",", var.sizes)
        TIER  = var.labels["tier"]
      }
      config {
        command = "/bin/sh"
        args    = ["-c", "test \"$SIZES\" = 1,2 && test \"$TIER\" = web"]
      }
    }
  }
}
