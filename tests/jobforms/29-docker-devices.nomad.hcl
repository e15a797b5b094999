# Form: devices = [{ host_path, container_path }], privileged as text, cap_add
# Nomad: accepted
# allostat: accepted
job "bench" {
  datacenters = ["lab"]
  group "main" {
    task "app" {
      driver = "docker"
      config {
        image = "registry.lab/bench:1"
        privileged = "true"
        cap_add    = ["NET_ADMIN", "sys_nice"]
        devices = [
          {
            host_path      = "/dev/null"
            container_path = "/dev/sink"
          },
        ]
      }
    }
  }
}
