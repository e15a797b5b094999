# Form: type = "sysbatch" with a script in a template
# Nomad: accepted
# allostat: accepted
job "sweep" {
  type = "sysbatch"
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["local/run.sh"]
      }
      template {
        destination = "local/run.sh"
        perms       = "755"
        data        = <<EOH
      #!/bin/sh
      echo sweeping
        EOH
      }
    }
  }
}
