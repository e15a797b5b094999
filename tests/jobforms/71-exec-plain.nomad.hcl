# Form: driver = "exec" with command and args
# Nomad: accepted
# allostat: accepted
job "loom" {
  group "main" {
    task "app" {
      driver = "exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
      resources {
        cpu    = 50
        memory = 32
      }
    }
  }
}
