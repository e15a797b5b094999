# Form: config = { ... } with an equals sign
# Nomad: refused (an argument named "config" is not expected here; did you mean to define a block)
# allostat: refused: `config` is a stanza: write `config { ... }` without `=`
job "easel" {
  datacenters = ["lab"]
  group "main" {
    task "app" {
      driver = "docker"
      config = {
        image = "registry.lab/easel:1"
      }
    }
  }
}
