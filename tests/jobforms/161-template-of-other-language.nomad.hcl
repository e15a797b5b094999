# Form: a configuration with {{ }} of its own in a template
# Nomad: accepted; consul-template refuses it at the start
# allostat: accepted
job "mill" {
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
      template {
        data        = <<EOF
      summary: "{{ $labels.instance }} is down"
      EOF
        destination = "local/rules.yml"
      }
      template {
        data        = "{{ humanise 1024 }}"
        destination = "local/size"
      }
    }
  }
}
