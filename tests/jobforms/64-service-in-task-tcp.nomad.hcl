# Form: service in the task, tcp check with check_restart, service name with interpolation
# Nomad: accepted
# allostat: accepted
job "dairy" {
  datacenters = ["lab"]
  group "main" {
    network {
      port "db" {}
    }
    task "app" {
      driver = "docker"
      config {
        image = "registry.lab/dairy:1"
        ports = ["db"]
      }
      service {
        name = "${NOMAD_JOB_NAME}-db"
        port = "db"
        check {
          name     = "alive"
          type     = "tcp"
          interval = "10s"
          timeout  = "2s"
          check_restart {
            limit           = 3
            grace           = "90s"
            ignore_warnings = "false"
          }
        }
      }
    }
  }
}
