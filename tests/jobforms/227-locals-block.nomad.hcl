# Form: a block within `locals`
# Nomad: refused: Unexpected "image" block; Blocks are not allowed here
# allostat: refused: `image` is a value
locals {
  image {
    tag = "1"
  }
}
job "bell" {
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
