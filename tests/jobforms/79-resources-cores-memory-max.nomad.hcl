# Form: cores = 2, memory_max, disk, iops
# Nomad: accepted
# allostat: accepted
job "boiler" {
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
      resources {
        cores      = 2
        memory     = 64
        memory_max = 128
        disk       = 300
      }
    }
  }
}
