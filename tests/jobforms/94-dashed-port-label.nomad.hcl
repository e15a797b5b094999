# Form: a port label with a dash and a reference to it with the dash
# Nomad: accepted: NOMAD_PORT_product-api is replaced, and the variable is there with an underscore too
# allostat: accepted
job "dash-mart" {
  group "main" {
    network {
      port "price-api" {
        to = 80
      }
    }
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
      env {
        API = "http://${NOMAD_ADDR_price-api}"
        ALT = "${NOMAD_PORT_price_api}"
      }
    }
  }
}
