# Form: two network blocks of a group; cidr, ip and an empty DNS server; a port label with a blank
# Nomad: accepted; the first network counts
# allostat: accepted
job "mill" {
  group "main" {
    network {
      cidr = "10.0.0.0/8"
      ip   = "10.0.0.1"
      port "my web" {}
      dns {
        servers = [""]
      }
    }
    network {
      port "other" {}
    }
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
