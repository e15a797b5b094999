job "x" {
  group "g" {
    task "t" {
      driver: "raw_exec"
    }
  }
}
