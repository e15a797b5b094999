# page: nomad/docs/job-specification/resources
# expect: running
# warns: network mbits
job "older" {
  group "cache" {
    task "redis" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "test $NOMAD_PORT_db -ge 20000 && test $NOMAD_ADDR_db = $NOMAD_IP_db:$NOMAD_PORT_db && exec sleep 600"]
      }
      resources {
        network {
          mbits = 10
          port "db" {}
        }
      }
    }
    task "client" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "test $NOMAD_PORT_redis_db -ge 20000 && exec sleep 600"]
      }
    }
  }
}
