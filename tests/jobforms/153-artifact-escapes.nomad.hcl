# Form: an artifact whose destination leads out of the directory of the alloc
# Nomad: refused
# allostat: refused: leads out of the directory of the alloc
job "cargo" {
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
      artifact {
        source      = "https://files.lab/x"
        destination = "../../etc"
      }
    }
  }
}
