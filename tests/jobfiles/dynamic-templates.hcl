# page: nomad/docs/reference/hcl2/expressions
# expect: complete
job "rendered" {
  type = "batch"
  group "work" {
    task "work" {
      driver = "raw_exec"
      dynamic "template" {
        for_each = ["a", "b"]
        content {
          data        = <<EOT
%{ for n in range(2) ~}
${template.value}${n}
%{ endfor ~}
EOT
          destination = "local/${template.value}"
        }
      }
      config {
        command = "/bin/sh"
        args    = ["-c", "test \"$(cat local/a local/b | tr -d '\\n')\" = a0a1b0b1"]
      }
    }
  }
}
