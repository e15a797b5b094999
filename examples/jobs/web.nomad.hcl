job "web" {
  constraint {
    attribute = "${attr.kernel.name}"
    value     = "linux"
  }

  group "app" {
    network {
      port "http" {}
    }

    task "server" {
      driver = "exec"
      user   = "nobody"

      config {
        command = "/usr/bin/python3"
        args    = ["-m", "http.server", "--directory", "/local", "${NOMAD_PORT_http}"]
      }

      template {
        destination = "local/index.html"
        data        = "Hello from {{ env \"NOMAD_ALLOC_NAME\" }}\n"
      }

      resources {
        cpu    = 200
        memory = 64
      }
    }
  }
}
