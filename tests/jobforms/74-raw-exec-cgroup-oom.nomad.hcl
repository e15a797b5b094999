# Form: raw_exec with Nomad's newer fields: oom_score_adj, cgroup_v2_override, denied_envvars
# Nomad: accepted (Nomad 1.8 and later)
# allostat: accepted
job "bobbin" {
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command            = "/bin/sleep"
        args               = ["600"]
        oom_score_adj      = 500
        cgroup_v2_override = "custom.slice"
        denied_envvars     = ["AWS_*"]
      }
    }
  }
}
