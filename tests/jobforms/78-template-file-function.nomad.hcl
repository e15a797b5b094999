# Form: template data = file("..") and source
# Nomad: accepted when the file is there
# allostat: accepted
job "gazette" {
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
      template {
        data        = file("tests/jobforms/98-count-zero.nomad.hcl")
        destination = "local/note"
      }
      template {
        source      = "local/note"
        destination = "local/copy"
      }
    }
  }
}
