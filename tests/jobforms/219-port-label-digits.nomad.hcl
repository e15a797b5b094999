# Form: ports whose labels are numbers, and services and checks that name them
# Nomad: accepted
# allostat: accepted
job "chat" {
  group "main" {
    network {
      port "0" {
        static = 64738
      }
      port "8080" {
        static = 18080
      }
    }
    service {
      name     = "voice"
      port     = "0"
      provider = "nomad"
      check {
        type     = "tcp"
        interval = "10s"
        timeout  = "2s"
      }
    }
    service {
      name     = "web"
      port     = "8080"
      provider = "nomad"
    }
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
