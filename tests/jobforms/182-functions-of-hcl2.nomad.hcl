# Form: the functions that Nomad has and few use
# Nomad: accepted
# allostat: accepted
job "mill" {
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
      env {
        A = yamlencode({ a = [1, "b"], c = { d = null } })
        B = yamldecode("a: [1, 2]").a[1]
        C = formatdate("DD MMM YYYY hh:mm ZZZ", "2026-01-31T12:30:00Z")
        D = timeadd("2026-01-31T12:30:00Z", "-1h30m")
        E = csvdecode("a,b\n1,\"2,3\"\n")[0].b
        F = uuidv5("dns", "lab")
        G = convert("5", number) + 1
        H = abspath("/a/../b")
        I = pathexpand("/a")
        J = reverse("abc")
      }
    }
  }
}
