# Form: port with static and to as blocks of several lines; count; restart
# Nomad: accepted
# allostat: accepted
job "larder" {
  datacenters = ["lab"]
  group "main" {
    count = 1
    restart {
      attempts = 10
      interval = "5m"
      delay    = "25s"
      mode     = "delay"
    }
    network {
      port "db" {
        static = 15432
        to     = 5432
      }
    }
    task "app" {
      driver = "docker"
      config {
        image = "registry.lab/larder:1"
        ports = ["db"]
      }
    }
  }
}
