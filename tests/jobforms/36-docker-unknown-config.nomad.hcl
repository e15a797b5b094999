# Form: a config field that the driver does not have (pull_policy)
# Nomad: parsed; refused when the task starts (invalid label: no argument or block type named "pull_policy")
# allostat: refused: pull_policy: is no field of `config` here
job "mirror" {
  datacenters = ["lab"]
  group "main" {
    task "app" {
      driver = "docker"
      config {
        image = "registry.lab/mirror:1"
        pull_policy = "always"
      }
    }
  }
}
