# page: nomad/docs/reference/hcl2/locals
# expect: complete
# In whatever order they are written.
locals {
  greeting = "${local.word} ${local.place}"
  word     = upper("hello")
}
locals {
  place = trimspace(" world ")
}
job "greeting" {
  type = "batch"
  group "work" {
    task "work" {
      driver = "raw_exec"
      config {
        command = "/usr/bin/test"
        args    = [local.greeting, "=", "HELLO world"]
      }
    }
  }
}
