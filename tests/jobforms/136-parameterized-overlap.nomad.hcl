# Form: a key that is required and optional
# Nomad: refused
# allostat: refused: the key `who` is required and optional
job "bell" {
  type = "batch"
  parameterized {
    meta_required = ["who"]
    meta_optional = ["who"]
  }
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/date"
      }
    }
  }
}
