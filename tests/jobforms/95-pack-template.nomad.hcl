# Form: a file of nomad-pack or levant: [[ ]] in it
# Nomad: refused (it is no HCL before it has been rendered)
# allostat: refused: HCL syntax: invalid structure; expected `{`, `=`, `"` or identifier
job [[ .shop.name | quote ]] {
  datacenters = [[ .shop.dcs | toStringList ]]
  group "main" {
    count = [[ .shop.count ]]
    task "app" {
      driver = "docker"
      config {
        image = "registry.lab/shop:1"
      }
    }
  }
}
