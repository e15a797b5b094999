# Form: two templates with one destination
# Nomad: refused: Template 2 has same destination as 1
# allostat: refused: has the destination `local/a` already
job "template" {
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
      template {
        data        = "a"
        destination = "local/a"
      }
      template {
        data        = "b"
        destination = "local/a"
      }
    }
  }
}
