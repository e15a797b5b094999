# Form: datacenters = "lab": a text instead of a list
# Nomad: refused by HCL2 (list of string required); HCL1 took it, Terraform templates still render it
# allostat: refused: `datacenters` takes a list of texts, not a text
job "compass" {
  datacenters = "lab"
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
    }
  }
}
