# Form: a comma after an argument in a block
# Nomad: refused by HCL2 (missing newline after argument); HCL1 took it
# allostat: refused: HCL syntax: expected newline or eof
job "ribbon" {
  group "main" {
    restart {
      attempts = 2,
      delay    = "5s",
    }
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
    }
  }
}
