# Form: env { "KEY" = "v" }: quoted keys in a block
# Nomad: refused by HCL2 (argument names must not be quoted); HCL1 took it and old files are full of it
# allostat: refused: HCL syntax: invalid block body; expected `}`, newline or identifier
job "parcel" {
  datacenters = ["lab"]
  group "main" {
    task "app" {
      driver = "docker"
      config {
        image = "registry.lab/parcel:1"
      }
      env {
        "MODE" = "fast"
        "DC"   = "in ${node.datacenter}"
      }
    }
  }
}
