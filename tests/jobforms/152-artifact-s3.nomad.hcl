# Form: an artifact of an object store
# Nomad: accepted
# allostat: accepted
job "cargo" {
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
      artifact {
        source = "s3::https://s3.eu-west-1.amazonaws.com/bucket/key.tgz"
      }
    }
  }
}
