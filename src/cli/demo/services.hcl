# What `allostat demo` runs: four services of different character. @ALLOSTAT@ is the binary itself.
job "demo" {
  type = "service"

  group "steady" {
    task "web" {
      driver = "raw_exec"
      config {
        command = "@ALLOSTAT@"
        args    = ["workload", "steady", "24"]
      }
      resources {
        memory = 64
      }
    }
  }

  # Wants a whole core for 3 s of every 6, and may have 0.3: it is throttled.
  group "bursty" {
    task "worker" {
      driver = "raw_exec"
      config {
        command        = "@ALLOSTAT@"
        args           = ["workload", "bursty", "3000", "3000"]
        cpu_hard_limit = true
      }
      resources {
        cpu    = 300
        memory = 64
      }
    }
  }

  # Holds a GPU: that of this host, or the simulated one.
  group "model" {
    task "model" {
      driver = "raw_exec"
      config {
        command = "@ALLOSTAT@"
        args    = ["workload", "steady", "16"]
      }
      resources {
        memory = 48
        device "gpu" {}
      }
    }
  }

  # Leaks 8 MiB a second into 48 MiB: the kernel kills it, the restart policy starts it again.
  group "leaky" {
    restart {
      attempts = 1000
      interval = "1h"
      delay    = "2s"
      mode     = "delay"
    }
    task "leak" {
      driver = "raw_exec"
      config {
        command = "@ALLOSTAT@"
        args    = ["workload", "leak", "8", "96"]
      }
      resources {
        memory = 48
      }
    }
  }
}
