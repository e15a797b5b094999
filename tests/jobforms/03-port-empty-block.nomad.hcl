# Form: port "web" {} and port "raw" { } without a field: a dynamic port
# Nomad: accepted
# allostat: accepted
job "kettle" {
  group "main" {
    network {
      port "web" {}
      port "raw" { }
    }
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
      env {
        LISTEN = "${NOMAD_PORT_web}"
      }
    }
  }
}
