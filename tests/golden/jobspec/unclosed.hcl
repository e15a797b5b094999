job "x" {
  type = "batch
  group "g" {
  }
}
