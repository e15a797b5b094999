# Form: a port of docker that no network has
# Nomad: accepted: the task fails to start
# allostat: accepted
job "docker" {
  group "main" {
    task "app" {
      driver = "docker"
      config {
        image = "registry.lab/a:1"
        ports = ["zz"]
      }
    }
  }
}
