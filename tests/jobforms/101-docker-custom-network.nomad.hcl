# Form: network_mode with a network of one's own (also from a variable), network_aliases, interactive
# Nomad: accepted
# allostat: accepted
variable "net" {
  default = "lab_main"
}
job "relay" {
  datacenters = ["lab"]
  group "main" {
    network {
      port "web" {
        to = 80
      }
    }
    task "app" {
      driver = "docker"
      config {
        image = "registry.lab/relay:1"
        network_mode    = var.net
        network_aliases = ["relay-${NOMAD_ALLOC_INDEX}"]
        hostname        = "relay"
        interactive     = false
      }
    }
  }
}
