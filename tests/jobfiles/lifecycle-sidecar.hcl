# page: nomad/docs/job-specification/lifecycle
# expect: complete
# A log shipper runs beside the work and is ended after it.
job "shipped" {
  type = "batch"
  group "work" {
    task "shipper" {
      lifecycle {
        hook    = "prestart"
        sidecar = true
      }
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
    }
    task "work" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["0.3"]
      }
    }
  }
}
