# Form: a reference in the label of a job
# Nomad: refused: Template sequences are not allowed in this string
# allostat: refused: the name of a stanza is a plain text
job "user-${USER_ID}" {
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
