# page: nomad/docs/job-specification/logs
# expect: complete
job "talkative" {
  type = "batch"
  group "work" {
    task "work" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "seq 200000"]
      }
      logs {
        max_files     = 3
        max_file_size = 1
      }
    }
  }
}
