# Form: template with data in a heredoc, env = true, change_mode, perms as a number, data=<<EOF without blanks
# Nomad: accepted
# allostat: accepted
job "press" {
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
      template {
        data=<<EOF
      KEY={{ env "NOMAD_ALLOC_ID" }}
      EOF
        destination     = "secrets/app.env"
        env             = true
        change_mode     = "restart"
        change_signal   = "SIGHUP"
        perms           = 640
        left_delimiter  = "{{"
        right_delimiter = "}}"
        splay           = "5s"
      }
    }
  }
}
