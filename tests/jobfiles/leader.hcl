# page: nomad/docs/job-specification/task
# expect: complete
# The leader's end is the end of the others.
job "led" {
  type = "batch"
  group "pair" {
    task "shipper" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
    }
    task "main" {
      leader = true
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["0.3"]
      }
    }
  }
}
