# Form: port_map together with a network of the group
# Nomad: parsed; refused when the task starts ("cannot map group network ports, use 'ports' instead")
# allostat: accepted, unlike Nomad
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
