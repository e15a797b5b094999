# Form: references with an index beside a variable: text of a shell, or of Terraform
# Nomad: accepted
# allostat: accepted
variable "name" {
  default = "mill"
}
job "mill" {
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
      env {
        B = "${aws_instance.x.0.private_ip}"
      }
      template {
        data        = <<EOF
export NAME=${var.name}
echo ${HOME} ${BASH_SOURCE[0]}
EOF
        destination = "local/run.sh"
      }
    }
  }
}
