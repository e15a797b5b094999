# Form: old interpolations: ${TASKGROUP}, ${JOB}, $node.class, $attr.kernel.name
# Nomad: accepted by the parser; the constraint on "$attr..." matches literally only
# allostat: accepted
job "relic" {
  group "main" {
    constraint {
      attribute = "${attr.kernel.name}"
      value     = "linux"
    }
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
      env {
        GROUP = "${TASKGROUP}"
        JOBID = "${JOB}"
        ADDR  = "${NOMAD_ADDR_app_web}"
      }
    }
  }
}
