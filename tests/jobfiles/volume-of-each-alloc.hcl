# page: nomad/docs/job-specification/volume
# expect: waits host_volume
job "shards" {
  group "shard" {
    count = 2
    volume "shard" {
      type      = "host"
      source    = "shard"
      per_alloc = true
    }
    task "shard" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
