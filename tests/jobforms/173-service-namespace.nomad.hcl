# Form: a service with a namespace
# Nomad: refused: Unsupported argument
# allostat: refused: `namespace`
job "mill" {
  group "main" {
    service {
      name      = "web"
      port      = "8080"
      namespace = "prod"
    }
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
