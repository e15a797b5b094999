# Five tasks of 50 ms: too short for any sampler, and measured all the same, because the last reading is part of the exit.
job "short" {
  type = "batch"

  group "fifty-ms" {
    count = 5
    task "job" {
      driver = "raw_exec"
      config {
        command = "@ALLOSTAT@"
        args    = ["workload", "short", "50"]
      }
      resources {
        memory = 32
      }
    }
  }
}
