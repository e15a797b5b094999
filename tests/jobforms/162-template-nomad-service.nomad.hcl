# Form: a template with a function of a Nomad cluster
# Nomad: accepted; it needs servers
# allostat: refused, unlike Nomad: nomadService is not supported
job "mill" {
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
      template {
        data        = "{{ range nomadService \"db\" }}{{ .Port }}{{ end }}"
        destination = "local/db"
      }
    }
  }
}
