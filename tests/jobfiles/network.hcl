# page: nomad/docs/job-specification/network
# expect: refused network
job "listening" {
  group "web" {
    network {
      port "http" {
        static = 8080
      }
    }
    task "serve" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
