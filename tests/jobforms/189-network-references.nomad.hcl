# Form: references in host_network, dns.servers and cni args
# Nomad: accepted
# allostat: accepted
job "network" {
  group "main" {
    network {
      mode = "cni/lab"
      port "http" {
        host_network = "${meta.network}"
      }
      dns {
        servers = ["${attr.unique.network.ip-address}"]
      }
      cni {
        args = {
          Dir = "${NOMAD_ALLOC_DIR}/cni"
        }
      }
    }
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
