# Form: type = "system" with priority, node_pool and a static port, no datacenters
# Nomad: accepted
# allostat: accepted
job "lookout" {
  type      = "system"
  priority  = 90
  node_pool = "default"
  group "main" {
    network {
      port "metrics" {
        static = 19100
      }
    }
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
    }
  }
}
