# Form: volumes with relative, absolute, named and interpolated sources, a trailing comma
# Nomad: accepted
# allostat: accepted
job "shelf" {
  datacenters = ["lab"]
  group "main" {
    task "app" {
      driver = "docker"
      config {
        image = "registry.lab/shelf:1"
        volumes = [
          "local/app.conf:/etc/app.conf:ro",
          "${NOMAD_ALLOC_DIR}/data:/data",
          "paper:/srv",
          "/var/run/docker.sock:/var/run/docker.sock",
        ]
      }
    }
  }
}
