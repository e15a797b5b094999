# page: nomad/docs/job-declare
# expect: running
# warns: datacenters canary service
# The whole of a small application: a migration before, a proxy beside, the server as leader, a clean-up after.
job "web-app" {
  datacenters = ["*"]
  type        = "service"
  meta {
    version = "42"
  }
  update {
    canary = 1
  }
  group "app" {
    count = 1
    restart {
      attempts = 1
      interval = "30s"
      delay    = "1s"
      mode     = "fail"
    }
    service {
      name = "app"
    }
    task "migrate" {
      lifecycle {
        hook = "prestart"
      }
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "echo schema-$NOMAD_META_version > $NOMAD_ALLOC_DIR/data/schema"]
      }
    }
    task "proxy" {
      lifecycle {
        hook    = "prestart"
        sidecar = true
      }
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
    }
    task "server" {
      leader = true
      driver = "raw_exec"
      env {
        MODE = "production"
      }
      config {
        command = "/bin/sh"
        args    = ["-c", "test -f $NOMAD_ALLOC_DIR/data/schema && exec sleep 600"]
      }
      resources {
        cpu    = 200
        memory = 128
      }
    }
    task "clean" {
      lifecycle {
        hook = "poststop"
      }
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "rm -f $NOMAD_ALLOC_DIR/data/schema"]
      }
    }
  }
}
