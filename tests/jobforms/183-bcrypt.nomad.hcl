# Form: bcrypt, which yields another hash each time
# Nomad: accepted
# allostat: refused, unlike Nomad: bcrypt() is not supported
job "mill" {
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
      env {
        A = bcrypt("secret")
      }
    }
  }
}
