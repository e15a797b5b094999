# page: nomad/docs/job-specification/job
# expect: complete
# warns: datacenters
job "nightly-report" {
  type        = "batch"
  datacenters = ["dc1"]

  group "report" {
    task "count" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "seq 1000 | wc -l"]
      }
      resources {
        cpu    = 100
        memory = 64
      }
    }
  }
}
