# Form: ulimit { }, sysctl = { "dotted" = "1" }, shm_size, memory_hard_limit, cpu_hard_limit
# Nomad: accepted
# allostat: accepted
job "furnace" {
  datacenters = ["lab"]
  group "main" {
    task "app" {
      driver = "docker"
      config {
        image = "registry.lab/furnace:1"
        ulimit {
          nofile = "1024:4096"
        }
        sysctl = {
          "net.core.somaxconn" = "1024"
        }
        shm_size          = 67108864
        memory_hard_limit = 256
        cpu_hard_limit    = true
        pids_limit        = 100
      }
    }
  }
}
