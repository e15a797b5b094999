# Form: drivers that are no part of this: podman, java, qemu
# Nomad: accepted by the parser (the driver must be on the host)
# allostat: refused, unlike Nomad: there is no driver "podman"; there are raw_exec, exec, docker, mock
job "zoo" {
  group "main" {
    task "app" {
      driver = "podman"
      config {
        image = "registry.lab/zoo:1"
        ports = ["web"]
      }
    }
  }
}
