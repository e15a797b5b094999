# Form: network, volume and meta after the tasks: order does not matter
# Nomad: accepted
# allostat: accepted
job "mill" {
  group "main" {
    task "app" {
      config {
        command = "/bin/sleep"
        args    = ["60"]
      }
      driver = "raw_exec"
    }
    network {
      port "web" {}
    }
    count = 1
  }
  datacenters = ["lab"]
}
