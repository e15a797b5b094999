# Form: port_map together with a network of the group
# Nomad: accepted; the start of the task fails ('port_map' cannot map group network ports, use 'ports' instead)
# allostat: accepted, with a warning: the start of the task will fail: `port_map` maps ports of the task's own `network`
job "coop" {
  datacenters = ["lab"]
  group "main" {
    network {
      port "web" {}
    }
    task "app" {
      driver = "docker"
      config {
        image = "registry.lab/coop:1"
        port_map {
          web = 80
        }
      }
    }
  }
}
