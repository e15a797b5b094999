# Form: sockaddr in a template
# Nomad: accepted
# allostat: accepted
job "sockaddr" {
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
      template {
        destination = "local/e"
        data        = <<EOH
IP = {{ sockaddr "GetPrivateIP" }}
ETH = {{ sockaddr "GetInterfaceIP \"eth0\"" }}
PIPED = {{ env "IFACE" | printf "%q" | sockaddr "GetInterfaceIP" }}
NAME = {{ sockaddr "GetPrivateInterfaces | include \"network\" \"192.168.1.0/24\" | attr \"name\"" }}
EOH
      }
    }
  }
}
