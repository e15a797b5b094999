# page: nomad/docs/job-specification/vault
# expect: refused vault
job "secretive" {
  group "web" {
    task "serve" {
      driver = "raw_exec"
      vault {
        policies = ["read"]
      }
      config {
        command = "/bin/true"
      }
    }
  }
}
