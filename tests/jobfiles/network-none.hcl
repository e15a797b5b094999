# page: nomad/docs/job-specification/network
# expect: complete
# needs: root
job "unconnected" {
  type = "batch"
  group "work" {
    network {
      mode = "none"
    }
    task "raw" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "test \"$(grep -c : /proc/net/dev)\" = 1"]
      }
    }
    task "isolated" {
      driver = "exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "test \"$(grep -c : /proc/net/dev)\" = 1"]
      }
    }
  }
}
