# Form: an index of a set
# Nomad: refused, the elements of a set have no index.
# allostat: refused: the elements of a set have no index
job "sets" {
  meta {
    first = setunion(["b"], ["a"])[0]
  }
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
