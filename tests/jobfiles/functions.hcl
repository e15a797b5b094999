# page: nomad/docs/reference/hcl2/functions
# expect: complete
job "computed" {
  type = "batch"
  meta {
    words = join(" ", sort(distinct(["b", "a", "b"])))
    sum   = sha1("abc")
    net   = cidrsubnet("10.0.0.0/8", 8, 2)
  }
  group "work" {
    task "work" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args = ["-c", <<EOT
test "$NOMAD_META_words" = 'a b' && test "$NOMAD_META_net" = 10.2.0.0/16 &&
test "$NOMAD_META_sum" = "$(printf abc | sha1sum | cut -d' ' -f1)"
EOT
        ]
      }
    }
  }
}
