# Form: MODE = fast: a bare word, which was meant as text
# Nomad: accepted: the task gets the text "${fast}" (a well-known trap)
# allostat: accepted
job "satchel" {
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
      env {
        MODE  = fast
        HOST  = attr.unique.hostname
        ALLOC = NOMAD_ALLOC_ID
      }
    }
  }
}
