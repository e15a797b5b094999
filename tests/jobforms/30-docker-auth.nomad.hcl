# Form: auth { username, password, server_address } and force_pull, image with interpolation
# Nomad: accepted
# allostat: accepted
job "gate" {
  datacenters = ["lab"]
  meta {
    image = "gate"
  }
  group "main" {
    task "app" {
      driver = "docker"
      config {
        image      = "registry.lab/${NOMAD_META_image}:stable"
        force_pull = true
        auth {
          username       = "reader"
          password       = "${REGISTRY_TOKEN}"
          server_address = "registry.lab"
        }
      }
    }
  }
}
