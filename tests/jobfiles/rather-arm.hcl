# page: nomad/docs/job-specification/affinity
# expect: complete
job "rather-arm" {
  type = "batch"
  group "work" {
    affinity {
      attribute = "${attr.cpu.arch}"
      value     = "arm64"
      weight    = 80
    }
    task "work" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
