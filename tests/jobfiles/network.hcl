# page: nomad/docs/job-specification/network
# expect: running
job "listening" {
  group "web" {
    network {
      port "http" {}
      port "admin" {
        static = 18087
        to     = 8087
      }
    }
    task "serve" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "test ${NOMAD_PORT_http} -ge 20000 && test ${NOMAD_HOST_PORT_admin} = 18087 && test $NOMAD_PORT_admin = 8087 && exec sleep 600"]
      }
    }
  }
}
