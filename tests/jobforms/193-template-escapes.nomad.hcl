# Form: a template that leads out of the alloc
# Nomad: refused: destination escapes allocation directory
# allostat: refused: `../../../a` leads out of the directory of the alloc
job "template" {
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
      template {
        data        = "a"
        destination = "../../../a"
      }
    }
  }
}
