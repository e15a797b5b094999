# Everything that is honoured, with values other than the defaults.
job "full" {
  id          = "full-1"
  name        = "Full"
  type        = "batch"
  region      = "eu"
  namespace   = "n"
  datacenters = ["dc7"]
  meta { a = "1" }

  group "g" {
    count = 3
    meta  = { b = 2 }
    restart {
      attempts = 5
      interval = "10m"
      delay    = "1.5s"
      mode     = "delay"
    }

    task "main" {
      driver = "raw_exec"
      user   = "nobody"
      config {
        command = "/bin/sh"
        args = ["-c", <<-END
          echo "$HOME" $${x} ${NOMAD_ALLOC_ID}
          END
        ]
        pids_limit = 10
        ratio      = 0.5
        on         = true
        nested {
          k = "${meta.a}"
        }
      }
      env {
        N = 5
        F = 1.5
        B = true
        T = "$${ is kept, 100 %%{ too"
      }
      meta { c = "3" }
      resources {
        cpu        = 250
        memory     = 64
        memory_max = 128
        device "nvidia/gpu" {
          count = 2
          constraint {
            attribute = "${device.attr.memory}"
            operator  = ">="
            value     = "20 GiB"
          }
          constraint {
            attribute = "${device.attr.driver_version}"
            operator  = "version"
            value     = ">= 535, < 600"
          }
          affinity {
            attribute = "${device.model}"
            operator  = "regexp"
            value     = "^A100"
            weight    = -20
          }
        }
        device "fpga" {
        }
      }
      restart {
        attempts = 1
        mode     = "fail"
      }
      logs {
        max_files     = 2
        max_file_size = 3
        disabled      = true
      }
      kill_timeout = "20s"
      kill_signal  = "TERM"
    }

    task "other" {
      driver = "mock"
      service {
        name = "other"
      }
    }
  }
}
