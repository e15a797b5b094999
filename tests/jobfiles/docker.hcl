# page: nomad/docs/deploy/task-driver/docker
# expect: refused docker
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
