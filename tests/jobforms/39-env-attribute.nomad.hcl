# Form: env = { "dotted.key" = 1, other : true } as an attribute, with = and : and quoted keys
# Nomad: accepted
# allostat: accepted
job "envelope" {
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
      env = {
        "paper.size" = 4
        WEIGHT : 1.5
        "URGENT" = true
      }
    }
  }
}
