# Form: a reference to a variable that a template with env = true makes
# Nomad: accepted: resolved at the start, after the template
# allostat: accepted
job "vaultkeeper" {
  datacenters = ["lab"]
  group "main" {
    task "app" {
      driver = "docker"
      config {
        image = "registry.lab/vaultkeeper:1"
        image_pull_timeout = "15m"
        auth {
          username = "lab"
          password = "${REG_PASS}"
        }
      }
      env {
        DB = "pg://lab:${DB_PASS}@db"
      }
      template {
        destination = "${NOMAD_SECRETS_DIR}/env.vars"
        env         = true
        data        = <<EOH
      DB_PASS=x
      REG_PASS=y
      EOH
      }
    }
  }
}
