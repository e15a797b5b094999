# Form: exec with pid_mode, ipc_mode, cap_add, cap_drop, work_dir
# Nomad: accepted
# allostat: accepted
job "spindle" {
  group "main" {
    task "app" {
      driver = "exec"
      config {
        command  = "/bin/sleep"
        args     = ["600"]
        pid_mode = "host"
        ipc_mode = "private"
        cap_add  = ["net_bind_service"]
        cap_drop = ["mknod"]
        work_dir = "/local"
      }
      user = "nobody"
    }
  }
}
