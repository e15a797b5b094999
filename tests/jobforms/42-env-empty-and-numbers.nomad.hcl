# Form: env {} empty, in another task numbers, booleans, negative and large numbers
# Nomad: accepted
# allostat: accepted
job "scale" {
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
      env {
        RETRIES = 3
        RATIO   = 0.5
        LIMIT   = 50000000000
        OFFSET  = -1
        DEBUG   = false
        EMPTY   = ""
      }
    }
  }
}
