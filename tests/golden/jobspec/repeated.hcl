job "x" {
  type = "batch"
  group "g" {
    count = 1
    count = 2
    task "t" {
      driver = "mock"
      config {
        a = 1
        a = 2
      }
      driver = "mock"
    }
  }
  type = "service"
}
