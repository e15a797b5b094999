# Form: $${NAME}, %%{http_code} and ${env["NAME"]} in texts
# Nomad: accepted
# allostat: accepted
job "flute" {
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
      env {
        RAW    = "$${NOT_NOW}"
        FORMAT = "%%{http_code}"
        HOME2  = "${env["HOME"]}"
      }
    }
  }
}
