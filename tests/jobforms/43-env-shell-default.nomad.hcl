# Form: "${NAME:-default}": a default of the shell in a text
# Nomad: refused by HCL2 (extra characters after interpolation expression); $${NAME:-default} is accepted
# allostat: refused: HCL syntax: expected `}`
job "whistle" {
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
      env {
        IMAGE = "${TAG:-latest}"
      }
    }
  }
}
