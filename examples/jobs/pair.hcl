# Two tasks of one group share a directory: one writes a line each second, the other follows it.
job "pair" {
  type = "service"

  group "lines" {
    task "writer" {
      driver = "raw_exec"

      config {
        command = "/bin/sh"
        args = [
          "-c",
          <<-SCRIPT
            i=0
            while sleep 1; do
              i=$((i + 1))
              echo "line $i of $NOMAD_ALLOC_ID" >> "$NOMAD_ALLOC_DIR/data/lines"
            done
          SCRIPT
          ,
        ]
      }

      resources {
        memory = 32
      }
    }

    task "reader" {
      driver = "raw_exec"

      config {
        command = "/usr/bin/tail"
        args    = ["-n", "+1", "-F", "${NOMAD_ALLOC_DIR}/data/lines"]
      }

      resources {
        memory = 32
      }
    }
  }
}
