# Form: logging { driver, config [ {...} ] }: the old name of type, config as a list
# Nomad: accepted (driver is the older name of type)
# allostat: accepted
job "almanac" {
  datacenters = ["lab"]
  group "main" {
    task "app" {
      driver = "docker"
      config {
        image = "registry.lab/almanac:1"
        logging {
          driver = "syslog"
          config = [{
            syslog-address = "udp://192.0.2.9:5514"
          }]
        }
      }
    }
  }
}
