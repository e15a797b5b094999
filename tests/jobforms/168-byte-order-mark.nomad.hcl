# Form: a byte order mark at the start
# Nomad: accepted
# allostat: accepted
job "mill" {
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
