# Form: sysctl { net.core.somaxconn = "1" }: a dotted key without quotes in a block
# Nomad: refused by HCL2 (an argument name is an identifier); HCL1 took it
# allostat: refused: HCL syntax: invalid structure; expected `{`, `=`, `"` or identifier
job "bellows" {
  datacenters = ["lab"]
  group "main" {
    task "app" {
      driver = "docker"
      config {
        image = "registry.lab/bellows:1"
        sysctl {
          net.core.somaxconn = "1024"
        }
      }
    }
  }
}
