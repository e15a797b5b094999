# Form: slashes in the names of job and group
# Nomad: accepted
# allostat: accepted
job "north/line-2" {
  datacenters = ["lab"]
  group "north/line-2" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
    }
  }
}
