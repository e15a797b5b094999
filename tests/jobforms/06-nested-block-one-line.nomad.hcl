# Form: resources { network { port "db" {} } } : a block in a block on one line
# Nomad: refused by HCL2 (nested block on a line of its own); HCL1 took it
# allostat: refused: HCL syntax: invalid attribute; expected `=`
job "sieve" {
  datacenters = ["lab"]
  group "main" {
    task "app" {
      driver = "docker"
      config {
        image = "registry.lab/sieve:1"
        port_map { db = 6379 }
      }
      resources { network { port "db" {} } }
    }
  }
}
