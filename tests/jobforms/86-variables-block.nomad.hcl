# Form: variables { } with defaults, an object, null; locals; functions
# Nomad: accepted
# allostat: accepted
variables {
  tag      = "1.2"
  versions = { app = "2.0" }
  extra    = null
}
locals {
  tags = concat(["lab"], compact(["", "v${var.tag}"]))
}
job "bindery" {
  datacenters = [for d in ["a", "b"] : upper(d)]
  group "main" {
    count = length(local.tags)
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/echo"
        args    = concat(local.tags, [var.versions.app, format("%s!", join(",", local.tags))])
      }
    }
  }
}
