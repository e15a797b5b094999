# Form: one static port twice, of the network "default" and of none
# Nomad: refused: Static port 8080 already reserved by taskgroup network:http
# allostat: refused: the static port 8080 is the port `http` of the group already
job "ports" {
  group "main" {
    network {
      port "http" {
        static = 8080
      }
      port "admin" {
        static       = 8080
        host_network = "default"
      }
    }
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
