# As Nomad's own example job: what of it is ignored is said, what is not built yet is refused.
job "cache" {
  datacenters = ["dc1"]
  type        = "service"
  priority    = 70
  update {
    max_parallel = 1
  }
  migrate {
    max_parallel = 1
  }
  group "cache" {
    count = 1
    network {
      port "db" {
        to = 6379
      }
    }
    service {
      name = "redis-cache"
      port = "db"
    }
    restart {
      attempts = 2
      interval = "30m"
      delay    = "15s"
      mode     = "fail"
    }
    ephemeral_disk {
      size = 300
    }
    task "redis" {
      driver = "docker"
      config {
        image = "redis:7"
        ports = ["db"]
      }
      resources {
        cpu    = 500
        memory = 256
      }
    }
  }
}
