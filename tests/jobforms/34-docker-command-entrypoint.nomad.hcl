# Form: command, args, entrypoint, work_dir, readonly_rootfs, security_opt
# Nomad: accepted
# allostat: accepted
job "anvil" {
  datacenters = ["lab"]
  group "main" {
    network {
      port "web" {}
    }
    task "app" {
      driver = "docker"
      config {
        image = "registry.lab/anvil:1"
        command         = "serve"
        args            = ["--port", "${NOMAD_PORT_web}", "--join=${NOMAD_ADDR_web}"]
        entrypoint      = ["/bin/sh", "-c"]
        work_dir        = "/srv"
        readonly_rootfs = true
        security_opt    = ["no-new-privileges"]
      }
    }
  }
}
