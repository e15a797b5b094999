# Form: a heredoc with %{http_code}, as curl -w has it
# Nomad: refused by HCL2 (%{ begins a directive); %%{ is accepted
# allostat: refused: HCL syntax: `%{` begins a directive of HCL, and this is none
job "pulley" {
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
      template {
        destination = "local/probe.sh"
        data        = <<EOF
      curl -s -w "%{http_code}" http://lab/
      EOF
      }
    }
  }
}
