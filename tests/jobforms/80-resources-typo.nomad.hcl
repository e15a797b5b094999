# Form: max_memory instead of memory_max, elay instead of delay (both seen)
# Nomad: refused (unsupported argument)
# allostat: refused: `elay` is not a field of `restart`
job "piston" {
  group "main" {
    restart {
      attempts = 3
      interval = "5m"
      elay     = "25s"
    }
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
      resources {
        memory     = 64
        max_memory = 128
      }
    }
  }
}
