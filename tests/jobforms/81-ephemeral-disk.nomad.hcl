# Form: ephemeral_disk with booleans and numbers as text
# Nomad: accepted
# allostat: accepted
job "pantry" {
  group "main" {
    ephemeral_disk {
      migrate = "true"
      size    = "500"
      sticky  = true
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
