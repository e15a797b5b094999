# Form: artifact with mode, headers { X-Name = ".." }, a source from meta
# Nomad: accepted
# allostat: accepted
job "freight" {
  meta {
    source = "https://files.lab/bin"
  }
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
      artifact {
        source      = "${NOMAD_META_source}"
        destination = "local/bin"
        mode        = "file"
        headers {
          X-Alloc = "${NOMAD_ALLOC_ID}"
        }
      }
    }
  }
}
