# Form: a dynamic block over a set
# Nomad: accepted; the key of an element of a set is the element, so that the mount is of the volume data-a.
# allostat: accepted
job "sets" {
  group "g" {
    volume "data-a" {
      type   = "host"
      source = "data"
    }
    task "t" {
      driver = "docker"
      config {
        image = "busybox"
      }
      dynamic "volume_mount" {
        for_each = setunion(["a"], ["a"])
        content {
          volume      = "data-${volume_mount.key}"
          destination = "/data"
        }
      }
    }
  }
}
