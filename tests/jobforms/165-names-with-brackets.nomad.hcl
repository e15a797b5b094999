# Form: names with blanks, brackets, quotes and ampersands
# Nomad: accepted
# allostat: accepted
job "a(b)#1,2'" {
  group "my:group (a)" {
    task "a & b" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
