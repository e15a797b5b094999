# Form: a datacenter without a name
# Nomad: refused: Job datacenter must be non-empty string
# allostat: refused: the name of a datacenter is empty
job "datacenters" {
  datacenters = [""]
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
