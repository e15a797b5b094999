# page: nomad/docs/job-specification/meta
# expect: complete
# The innermost value wins.
job "layered" {
  type = "batch"
  meta {
    tier = "job"
    team = "data"
  }
  group "work" {
    meta {
      tier = "group"
    }
    task "work" {
      meta {
        tier = "task"
      }
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "test \"$NOMAD_META_tier\" = task && test \"$NOMAD_META_TEAM\" = data"]
      }
    }
  }
}
