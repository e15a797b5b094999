# page: nomad/docs/job-specification/volume_mount
# expect: checked
job "mysql-server" {
  group "mysql" {
    volume "mysql" {
      type            = "host"
      read_only       = false
      source          = "mysql"
      access_mode     = "single-node-writer"
      attachment_mode = "file-system"
    }
    task "mysql" {
      driver = "docker"
      config {
        image = "mysql:8"
      }
      volume_mount {
        volume           = "mysql"
        destination      = "/var/lib/mysql/${NOMAD_TASK_NAME}"
        read_only        = "false"
        propagation_mode = "private"
      }
    }
  }
}
