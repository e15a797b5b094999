# Form: vault { policies }, identity, consul in places
# Nomad: accepted
# allostat: refused, unlike Nomad: `vault` is not supported: there is no Vault here
job "strongbox" {
  vault {}
  group "main" {
    vault {
      role = "paper"
    }
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
      vault {
        policies    = ["paper"]
        change_mode = "restart"
      }
      identity {
        env  = true
        file = true
      }
    }
  }
}
