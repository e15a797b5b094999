# Form: logging { type, config { dashed keys } }
# Nomad: accepted
# allostat: accepted
job "ledger" {
  datacenters = ["lab"]
  group "main" {
    task "app" {
      driver = "docker"
      config {
        image = "registry.lab/ledger:1"
        logging {
          type = "json-file"
          config {
            max-size = "10m"
            max-file = "3"
            tag      = "${NOMAD_TASK_NAME}"
          }
        }
      }
    }
  }
}
