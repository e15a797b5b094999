# Form: port "web" { static = 18080 to = 80 } : two fields on one line
# Nomad: refused by HCL2 (a single-line block definition can contain only a single argument); HCL1 took it
# allostat: refused: HCL syntax: invalid block body; expected `}`, newline or identifier
job "ladle" {
  datacenters = ["lab"]
  group "main" {
    network {
      port "web" { static = 18080 to = 80 }
    }
    task "app" {
      driver = "docker"
      config {
        image = "registry.lab/ladle:1"
        ports = ["web"]
      }
    }
  }
}
