# Form: port "web" { static = 18080 } on one line, with no space before the brace elsewhere
# Nomad: accepted
# allostat: accepted
job "spoon" {
  group "main" {
    network {
      port "web" { static = 18080 }
      port  "aux"{}
    }
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
    }
  }
}
