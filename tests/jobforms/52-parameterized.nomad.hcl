# Form: batch with parameterized { payload, meta_required } and dispatch_payload
# Nomad: accepted
# allostat: accepted
job "courier" {
  type = "batch"
  parameterized {
    payload       = "required"
    meta_required = ["who"]
    meta_optional = ["why"]
  }
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/cat"
        args    = ["local/input.json"]
      }
      dispatch_payload {
        file = "input.json"
      }
      env {
        WHO = "${NOMAD_META_who}"
      }
    }
  }
}
