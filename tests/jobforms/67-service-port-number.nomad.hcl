# Form: service port as a number, address_mode, canary_tags, meta, no name
# Nomad: accepted
# allostat: accepted
job "wharf" {
  group "main" {
    network {
      mode = "bridge"
    }
    service {
      port         = 9000
      address_mode = "alloc"
      canary_tags  = ["canary${NOMAD_ALLOC_INDEX}"]
      meta {
        metrics_port = "${NOMAD_HOST_PORT_metrics}"
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
