# Form: mounts = [ {...}, ] as a list of objects
# Nomad: accepted
# allostat: accepted
job "cupboard" {
  datacenters = ["lab"]
  group "main" {
    task "app" {
      driver = "docker"
      config {
        image = "registry.lab/cupboard:1"
        mounts = [
          {
            type   = "bind"
            source = "local"
            target = "/cfg" # a comment here
          },
        ]
      }
    }
  }
}
