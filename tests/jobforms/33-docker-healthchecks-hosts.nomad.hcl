# Form: healthchecks { disable = true } on one line, extra_hosts, dns_servers, hostname as a bare reference
# Nomad: accepted; NOMAD_JOB_NAME without quotes means "${NOMAD_JOB_NAME}"
# allostat: accepted
job "lantern" {
  datacenters = ["lab"]
  group "main" {
    task "app" {
      driver = "docker"
      config {
        image = "registry.lab/lantern:1"
        healthchecks { disable = true }
        hostname    = NOMAD_JOB_NAME
        extra_hosts = ["hub:${attr.unique.network.ip-address}", "host.docker.internal:host-gateway"]
        dns_servers = ["192.0.2.53"]
      }
    }
  }
}
