# page: nomad/docs/job-specification/job
# expect: complete
# warns: datacenters all_at_once
job "datacenter-patterns" {
  type = "batch"
  datacenters = ["dc*", "home"]
  all_at_once = false
  group "work" {
    task "work" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
