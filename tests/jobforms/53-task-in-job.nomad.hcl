# Form: a task directly in the job: a group of its own name
# Nomad: accepted
# allostat: accepted
job "solo" {
  datacenters = ["lab"]
  type        = "batch"
  task "solo" {
    driver = "raw_exec"
    config {
      command = "/bin/date"
    }
  }
}
