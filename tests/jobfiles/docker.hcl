# page: nomad/docs/deploy/task-driver/docker
# expect: checked
job "contained" {
  group "cache" {
    task "redis" {
      driver = "docker"
      config {
        image = "redis:7"
      }
    }
  }
}
