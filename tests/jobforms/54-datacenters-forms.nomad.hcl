# Form: datacenters over several lines with a trailing comma, "*", region, namespace, name
# Nomad: accepted
# allostat: accepted
job "atlas" {
  name        = "atlas"
  region      = "global"
  namespace   = "maps"
  datacenters = [
    "*",
  ]
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
    }
  }
}
