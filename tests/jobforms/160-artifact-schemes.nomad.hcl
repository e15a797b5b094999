# Form: artifacts over schemes that nothing here fetches
# Nomad: accepted; a download that fails is found at the start
# allostat: accepted
job "mill" {
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
      artifact {
        source = "gcs::https://www.googleapis.com/storage/v1/bucket/key"
      }
      artifact {
        source = "hg::http://hg.lab/repository"
      }
      artifact {
        source = "file:///srv/data.txt"
      }
    }
  }
}
