# Form: datacenters = []
# Nomad: accepted: any datacenter
# allostat: accepted
job "datacenters" {
  datacenters = []
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
