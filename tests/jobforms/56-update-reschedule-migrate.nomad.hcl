# Form: update with stagger and canary, reschedule, migrate, spread, affinity, all_at_once, vault
# Nomad: accepted
# allostat: accepted
job "convoy" {
  all_at_once = false
  update {
    max_parallel = 1
    stagger      = "30s"
    canary       = 1
    health_check = "task_states"
  }
  migrate {
    max_parallel = 1
  }
  group "main" {
    spread {
      attribute = "${node.datacenter}"
      weight    = 100
      target "lab" {
        percent = 60
      }
    }
    reschedule {
      attempts  = 0
      unlimited = false
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
