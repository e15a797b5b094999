# Form: artifacts of git: github.com/ORG/REPO, git::https with ref and depth, git@HOST, a subdirectory
# Nomad: accepted
# allostat: accepted
job "cargo" {
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
      artifact {
        source      = "github.com/hashicorp/nomad//demo/vagrant?ref=v1.9.0"
        destination = "local/repo"
      }
      artifact {
        source      = "git::https://git.lab/org/repo.git"
        destination = "local/other"
        options {
          ref   = "main"
          depth = 1
        }
      }
      artifact {
        source      = "git::git@github.com:org/repo.git"
        destination = "${NOMAD_TASK_DIR}/ssh"
        options {
          sshkey = "a2V5"
        }
      }
    }
  }
}
