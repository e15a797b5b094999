# Form: meta = { "pack.src" = "x" } in the job, meta in group and task; a reference to it
# Nomad: accepted
# allostat: accepted
job "tablet" {
  meta = {
    "pack.src" = "lab"
    uuid       = uuidv4()
  }
  group "main" {
    meta {
      tier = 1
    }
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
      meta = {
        "shelf-no" = "7"
      }
      env {
        TIER = "${NOMAD_META_tier}"
      }
    }
  }
}
