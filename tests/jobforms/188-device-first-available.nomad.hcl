# Form: device with first_available, and a constraint of all alternatives
# Nomad: accepted (newer versions)
# allostat: accepted
job "device" {
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
      resources {
        device "nvidia/gpu" {
          constraint {
            attribute = "${device.attr.memory}"
            operator  = ">="
            value     = "8 GiB"
          }
          first_available {
            count = 2
          }
          first_available {
            count = 1
            constraint {
              attribute = "${device.model}"
              operator  = "regexp"
              value     = "^A100"
            }
          }
        }
      }
    }
  }
}
