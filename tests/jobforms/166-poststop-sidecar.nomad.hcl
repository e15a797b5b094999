# Form: a poststop task with sidecar = true, a leader with a lifecycle
# Nomad: accepted
# allostat: accepted
job "mill" {
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
      leader = true
      lifecycle {
        hook    = "poststop"
        sidecar = true
      }
    }
  }
}
