# Form: sockaddr in a template, with an attribute that there is not
# Nomad: accepted: the start of the task fails
# allostat: refused: line 1, column 13 of the template: sockaddr: allostat has no attribute adress
job "sockaddr" {
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
      template {
        destination = "local/e"
        data        = <<EOH
{{ sockaddr "GetPrivateInterfaces | attr \"adress\"" }}
EOH
      }
    }
  }
}
