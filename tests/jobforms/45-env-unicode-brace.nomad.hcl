# Form: "$\u007Bnode.class\u007D": braces as unicode escapes, to get through a Terraform template
# Nomad: accepted: the text ${node.class}
# allostat: accepted
job "cipher" {
  group "main" {
    constraint {
      attribute = "$\u007Bnode.class\u007D"
      value     = "data"
    }
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
    }
  }
}
