# Form: a reference with dots to a variable that a template gives
# Nomad: accepted
# allostat: accepted
job "template" {
  group "main" {
    task "app" {
      driver = "docker"
      config {
        image = "registry.lab/a:1"
        args  = ["${APP.MODE}"]
      }
      template {
        data        = "APP.MODE=x"
        destination = "local/e"
        env         = true
      }
    }
  }
}
