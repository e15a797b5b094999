# Form: a condition with a list on one side and a text on the other
# Nomad: refused: Inconsistent conditional result types
# allostat: refused: the sides of a condition are a list and a string
job "mill" {
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
        args    = true ? ["a"] : "b"
      }
    }
  }
}
