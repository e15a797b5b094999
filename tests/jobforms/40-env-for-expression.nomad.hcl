# Form: env = { for ... } as an expression
# Nomad: accepted
# allostat: accepted
job "stamp" {
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
      env = { for k in ["a", "b"] : upper(k) => "val-${k}" }
    }
  }
}
