# Form: nullable of a variable, which is a word of Terraform
# Nomad: refused: Unsupported argument
# allostat: refused: a variable has no `nullable`
variable "x" {
  default  = "a"
  nullable = true
}
job "mill" {
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
