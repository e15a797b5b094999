# Form: two groups of one name
# Nomad: refused: Job task group 2 redefines 'main' from group 1
# allostat: refused: there is a group `main` already, in line 5
job "groups" {
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
