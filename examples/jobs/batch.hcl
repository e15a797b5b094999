# A batch job: runs until it is done. A failed attempt is tried again, twice at most.
job "checksums" {
  type = "batch"

  group "etc" {
    restart {
      attempts = 2
      interval = "5m"
      delay    = "2s"
    }

    task "sha256" {
      driver = "raw_exec"

      config {
        command = "/bin/sh"
        args = [
          "-c",
          "find /etc -maxdepth 1 -type f -readable -exec sha256sum {} + | sort > \"$NOMAD_ALLOC_DIR/data/checksums\" && wc -l < \"$NOMAD_ALLOC_DIR/data/checksums\"",
        ]
      }

      resources {
        memory = 64
      }
    }
  }
}
