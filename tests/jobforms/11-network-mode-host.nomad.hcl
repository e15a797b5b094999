# Form: network mode = "host" in the group and network_mode = "host" in config, with ports
# Nomad: accepted
# allostat: accepted
job "hearth" {
  datacenters = ["lab"]
  group "main" {
    network {
      mode = "host"
      port "web" {
        static = 19090
      }
    }
    task "app" {
      driver = "docker"
      config {
        image = "registry.lab/hearth:1"
        network_mode = "host"
        ports        = ["web"]
      }
    }
  }
}
