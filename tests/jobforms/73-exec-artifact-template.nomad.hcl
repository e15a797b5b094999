# Form: exec with artifact { options { checksum } } and a command below local/
# Nomad: accepted
# allostat: accepted
job "shuttle" {
  group "main" {
    network {
      port "web" {}
    }
    task "app" {
      driver = "exec"
      config {
        command = "local/tool"
        args    = ["-l", "${NOMAD_IP_web}:${NOMAD_PORT_web}"]
      }
      artifact {
        source      = "https://files.lab/tool_${attr.kernel.name}_${attr.cpu.arch}.zip"
        destination = "local"
        options {
          checksum = "md5:d41d8cd98f00b204e9800998ecf8427e"
        }
      }
    }
  }
}
