# page: nomad/docs/job-specification/volume
# expect: refused csi
job "networked" {
  group "db" {
    volume "data" {
      type            = "csi"
      source          = "test-volume"
      access_mode     = "single-node-writer"
      attachment_mode = "file-system"
      mount_options {
        fs_type     = "ext4"
        mount_flags = ["noatime"]
      }
    }
    task "db" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
