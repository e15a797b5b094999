# Form: restart { attempts = 0 } alone, restart with mode only, render_templates
# Nomad: accepted
# allostat: accepted
job "pendulum" {
  group "main" {
    restart {
      attempts = 0
    }
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
      restart {
        attempts         = 2
        interval         = "2m"
        mode             = "delay"
        render_templates = true
      }
    }
  }
}
