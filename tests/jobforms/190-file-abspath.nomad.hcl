# Form: abspath of a relative path
# Nomad: accepted: the path is absolute, whatever it is
# allostat: accepted
job "file" {
  meta {
    folder = basename(dirname(abspath("./a/b")))
  }
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
