# One of each kind of mistake in what a task asks of devices.
job "train" {
  group "g" {
    task "main" {
      driver = "raw_exec"
      resources {
        device "nvidia/gpu" {
          count = 0
          constraint {
            attribute = "device.attr.memory"
            operator  = ">="
            value     = "20 GiB"
          }
          constraint {
            attribute = "${device.attr.driver_version}"
            operator  = "version"
            value     = "new"
          }
          constraint {
            attribute = "${device.attr.memory}"
            operator  = "atleast"
            value     = 20
          }
          constraint {
            attribute = "${attr.cpu.arch}"
            value     = "arm64"
          }
          affinity {
            attribute = "${device.model}"
            value     = "A100"
            weight    = 500
          }
        }
        device "nvidia/" {
          constraint {
            operator = "is_set"
            regexp   = "^T4"
          }
        }
        device {
        }
      }
    }
  }
}
