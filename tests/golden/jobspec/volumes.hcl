job "stored" {
  type = "system"
  group "g" {
    volume "data" {
      type      = "host"
      source    = "data"
      per_alloc = true
    }
    volume "plugin" {
      type   = "csi"
      source = "plugin"
    }
    volume "kind" {
      source = "kind"
    }
    volume "other" {
      type   = "hots"
      source = "other"
    }
    volume "empty" {
      type   = "host"
      source = ""
    }
    volume "options" {
      type        = "host"
      source      = "options"
      access_mode = "single-node-reader-only"
      mount_options {
        fs_type = "ext4"
      }
    }
    volume "data" {
      type     = "host"
      source   = "twice"
      readonly = true
    }
    task "t" {
      driver = "exec"
      config {
        command = "x"
      }
      volume_mount {
        volume      = "dat"
        destination = "/data"
      }
      volume_mount {
        volume           = "data"
        destination      = "/data/../etc"
        propagation_mode = "shared"
        selinux_label    = "s"
      }
      volume_mount {
        volume      = "data"
        destination = "/data"
      }
      volume_mount {
      }
    }
  }
}
