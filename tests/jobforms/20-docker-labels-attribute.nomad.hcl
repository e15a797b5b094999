# Form: labels = { "dotted.key" = "v" } as an attribute with quoted keys, and jsonencode
# Nomad: accepted
# allostat: accepted
job "inkwell" {
  datacenters = ["lab"]
  group "main" {
    task "app" {
      driver = "docker"
      config {
        image = "registry.lab/inkwell:1"
        labels = {
          "lab.example.team" = "paper"
          "lab.example.json" = jsonencode(["a", { b = 1 }])
        }
      }
    }
  }
}
