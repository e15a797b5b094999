# Form: group names with a blank or a slash, a task name with a dot, a job name in capitals
# Nomad: accepted (a job id with a blank is refused, so is a task name with a slash)
# allostat: accepted
job "Print-Shop.v2" {
  group "front desk" {
    task "print.service" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
  group "lab/back-room" {
    task "bind" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
