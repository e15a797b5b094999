# page: nomad/docs/job-specification/env
# expect: complete
job "informed" {
  type = "batch"
  group "work" {
    meta {
      owner = "ops"
    }
    task "work" {
      driver = "raw_exec"
      env {
        OWNER = "${meta.owner}"
        ARCH  = "${attr.cpu.arch}"
        INDEX = "${NOMAD_ALLOC_INDEX}"
      }
      config {
        command = "/bin/sh"
        args    = ["-c", "test \"$OWNER\" = ops && test -n \"$ARCH\" && test \"$INDEX\" = 0 && test \"$NOMAD_META_OWNER\" = ops"]
      }
    }
  }
}
