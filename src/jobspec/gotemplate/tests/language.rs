//! The language itself: outputs are those of Go's own package for these templates and this data.

use super::{DATA, render_data};

#[rustfmt::skip]
const CASES: &[(&str, &str)] = &[
    ("plain text", "plain text"),
    (r#"a{{ "b" }}c"#, "abc"),
    (r#"{{ `raw "x" \n` }}"#, r#"raw "x" \n"#),
    (r#"{{ "tab\tquote\" é ☺ \x41 \101" }}"#, "tab\tquote\" é ☺ A A"),
    (r#"{{ 'a' }} {{ '\n' }} {{ '\'' }} {{ '\u00e9' }} {{ '\x41' }}"#, "97 10 39 233 65"),
    ("{{ 1 }} {{ -2 }} {{ +3 }} {{ 0x1F }} {{ 0o17 }} {{ 017 }} {{ 0b101 }} {{ 1_000 }}", "1 -2 3 31 15 15 5 1000"),
    (
        "{{ 1.5 }} {{ .5 }} {{ 1e3 }} {{ 1e6 }} {{ 1e21 }} {{ 0.00001 }} {{ 100000.0 }} {{ -2.50 }} {{ 1e-7 }}",
        "1.5 0.5 1000 1e+06 1e+21 1e-05 100000 -2.5 1e-07",
    ),
    ("{{ true }} {{ false }}", "true false"),
    ("{{ . | len }}", "14"),
    (r#"[  {{- "a" -}}  ]"#, "[a]"),
    ("[  {{- /* c */ -}}  ]", "[]"),
    ("a {{/* gone */}} b", "a  b"),
    ("x{{- 3 }}", "x3"),
    ("x {{-3 }}", "x -3"),
    (r#"{{- " y " -}}"#, " y "),
    ("{{ $x := 1 }}{{ $x }}", "1"),
    ("{{ $x := 1 }}{{ $x = 2 }}{{ $x }}", "2"),
    ("{{ $x := 1 }}{{ if true }}{{ $x = 2 }}{{ end }}{{ $x }}", "2"),
    ("{{ $x := 1 }}{{ if true }}{{ $x := 2 }}{{ $x }}{{ end }}{{ $x }}", "21"),
    ("{{ if .t }}yes{{ end }}", "yes"),
    ("{{ if .f }}yes{{ else }}no{{ end }}", "no"),
    ("{{ if .f }}1{{ else if .t }}2{{ else }}3{{ end }}", "2"),
    ("{{ if .f }}1{{ else if .zero }}2{{ else if .empty }}3{{ else }}4{{ end }}", "4"),
    ("{{ if .missing }}1{{ else }}2{{ end }}", "2"),
    (
        concat!(
            r#"{{ if .list }}1{{ end }}{{ if .nolist }}2{{ end }}{{ if .nomap }}3{{ end }}{{ if 0 }}4{{ end }}{"#,
            r#"{ if 0.0 }}5{{ end }}{{ if "" }}6{{ end }}{{ if " " }}7{{ end }}"#,
        ),
        "17",
    ),
    ("{{ if $y := .t }}{{ $y }}{{ end }}", "true"),
    ("{{ with .name }}<{{ . }}>{{ end }}", "<n>"),
    ("{{ with .missing }}a{{ else }}b{{ end }}", "b"),
    ("{{ with $n := .name }}{{ $n }}{{ . }}{{ end }}", "nn"),
    ("{{ with .map }}{{ .a }}{{ $.name }}{{ end }}", "1n"),
    ("{{ range .list }}{{ . }},{{ end }}", "x,y,z,"),
    ("{{ range $e := .list }}{{ $e }}{{ . }},{{ end }}", "xx,yy,zz,"),
    ("{{ range $i, $e := .list }}{{ $i }}={{ $e }},{{ end }}", "0=x,1=y,2=z,"),
    ("{{ range $k, $v := .map }}{{ $k }}={{ $v }},{{ end }}", "a=1,b=2,deep=map[x:y],"),
    ("{{ range .map }}{{ . }};{{ end }}", "1;2;map[x:y];"),
    ("{{ range .nolist }}x{{ else }}none{{ end }}", "none"),
    ("{{ range .missing }}x{{ else }}none{{ end }}", "none"),
    ("{{ range .nil }}x{{ else }}none{{ end }}", "none"),
    ("{{ range $i, $e := .list }}{{ if eq $i 1 }}{{ continue }}{{ end }}{{ $e }}{{ end }}", "xz"),
    ("{{ range $i, $e := .list }}{{ if eq $i 1 }}{{ break }}{{ end }}{{ $e }}{{ end }}", "x"),
    ("{{ range .nested }}{{ range . }}{{ . }}{{ if eq . 3.0 }}{{ break }}{{ end }}{{ end }};{{ end }}", "12;3;"),
    (
        r#"{{ range $i, $e := .list }}{{ with $e }}{{ if eq . "y" }}{{ continue }}{{ end }}{{ . }}{{ end }}{{ end }}"#,
        "xz",
    ),
    (r#"{{ $s := "" }}{{ range .list }}{{ $s = print $s . }}{{ end }}{{ $s }}"#, "xyz"),
    ("{{ $i := 9 }}{{ $e := 9 }}{{ range $i, $e = .list }}{{ end }}{{ $i }}{{ $e }}", "2z"),
    ("{{ range $i := loop 3 }}{{ $i }}{{ end }}", "012"),
    ("{{ range $i, $e := loop 5 8 }}{{ $i }}:{{ $e }} {{ end }}", "0:5 1:6 2:7 "),
    ("{{ range loop 0 }}a{{ else }}b{{ end }}", "b"),
    ("{{ .map.a }} {{ .map.deep.x }} {{ .missing }} {{ .missing.more }}", "1 y <no value> <no value>"),
    ("{{ .nil }} {{ .map.none }}", "<no value> <no value>"),
    (r#"{{ (.map).a }} {{ (index .nested 1) }} {{ (parseJSON "{\"q\": [1,2]}").q }}"#, "1 [3 4] [1 2]"),
    ("{{ $m := .map }}{{ $m.a }} {{ $m.deep.x }} {{ $.name }}", "1 y n"),
    (
        "{{ .map }} {{ .list }} {{ .nested }} {{ .num }} {{ .big }} {{ .frac }}",
        "map[a:1 b:2 deep:map[x:y]] [x y z] [[1 2] [3 4]] 5 1.234567e+06 0.25",
    ),
    (r#"{{ print "a" 1 2 "b" 3 }}"#, "a1 2b3"),
    (
        r#"{{ print 1 2 }}{{ print true false }}{{ print "a" "b" }}{{ print nil }}{{ print .missing }}"#,
        "1 2true falseab<nil><nil>",
    ),
    (r#"{{ println "a" 1 "b" }}"#, "a 1 b\n"),
    ("{{ println }}", "\n"),
    (
        r#"{{ printf "%s %d %v %q %x %f %t %%" "s" 42 "v" "q\"" 255 1.5 true }}"#,
        r#"s 42 v "q\"" ff 1.500000 true %"#,
    ),
    (
        concat!(
            r#"{{ printf "%5d|%-5d|%05d|%+d|% d|%x|%X|%#x|%o|%#o|%b|%c|%q|%U" 42 42 42 42 42 255 255 255 8 8 5 "#,
            r#"65 65 128512 }}"#,
        ),
        "   42|42   |00042|+42| 42|ff|FF|0xff|10|010|101|A|'A'|U+1F600",
    ),
    (
        concat!(
            r#"{{ printf "%8.3f|%-8.2f|%08.3f|%+.1f|%e|%E|%g|%G|%.3g|%.10g|%.0f" 3.14159 3.14159 3.14159 2.0 12"#,
            r#"345.678 12345.678 1e21 1e-10 1234.5678 0.1 2.5 }}"#,
        ),
        "   3.142|3.14    |0003.142|+2.0|1.234568e+04|1.234568E+04|1e+21|1E-10|1.23e+03|0.1|2",
    ),
    (
        r#"{{ printf "%g %g %g %v %v" 100000.0 1000000.0 123456789.0 1e20 0.000001 }}"#,
        "100000 1e+06 1.23456789e+08 1e+20 1e-06",
    ),
    (
        concat!(
            r#"{{ printf "%s|%10s|%-10s|%.2s|%q|%x|%X|% x|%#q" "héllo" "abc" "abc" "abcdef" "a\tb\u00e9\u00a0\u"#,
            r#"200b" "hi" "hi" "hi" "raw" }}"#,
        ),
        r#"héllo|       abc|abc       |ab|"a\tbé\u00a0\u200b"|6869|6869|68 69|`raw`"#,
    ),
    (r#"{{ printf "%d %s" "a" 1 }}"#, "%!d(string=a) %!s(int=1)"),
    (
        r#"{{ printf "%d" }} {{ printf "%d" 1 2 }} {{ printf "%!" }} {{ printf "%z" 1 }} {{ printf "%" }}"#,
        "%!d(MISSING) 1%!(EXTRA int=2) %!!(MISSING) %!z(int=1) %!(NOVERB)",
    ),
    (r#"{{ printf "%v %v %v %v" .list .map .nil true }}"#, "[x y z] map[a:1 b:2 deep:map[x:y]] <nil> true"),
    (r#"{{ printf "%d %d" .nested 5 }}"#, "[[%!d(float64=1) %!d(float64=2)] [%!d(float64=3) %!d(float64=4)]] 5"),
    (r#"{{ printf "%s %q" .list .list }}"#, r#"[x y z] ["x" "y" "z"]"#),
    (
        r#"{{ printf "%[2]d %[1]d" 1 2 }} {{ printf "%[3]d" 1 2 }} {{ printf "%*d|%-*d|%.*f" 5 1 5 2 2 3.14159 }}"#,
        "2 1 %!d(BADINDEX)     1|2    |3.14",
    ),
    (r#"{{ printf "%06d|%06d|%6.2f|%x|%x" -42 42 -1.5 -255 3.5 }}"#, "-00042|000042| -1.50|-ff|0x1.cp+01"),
    (r#"{{ printf "%t %v %s" false true true }}"#, "false true %!s(bool=true)"),
    (r#"{{ printf "%T %T %T %T" 1 "a" 1.5 true }}"#, "int string float64 bool"),
    (r#"{{ printf "%05s|%-05d|%+q" "ab" 3 "é" }}"#, r#"000ab|3    |"\u00e9""#),
    (r#"{{ "x" | printf "%s-%s" "y" }}"#, "y-x"),
    (r#"{{ "x" | printf "%s" | printf "<%s>" }}"#, "<x>"),
    (r#"{{ "a" | len }} {{ len "héé" }} {{ len .list }} {{ len .map }}"#, "1 5 3 3"),
    (
        concat!(
            r#"{{ index .list 1 }} {{ index .map "a" }} {{ index .nested 1 0 }} {{ index .map "deep" "x" }} "#,
            r#"{{ index "abc" 1 }} {{ index .list }}"#,
        ),
        "y 1 3 y 98 [x y z]",
    ),
    (r#"{{ index .map "none" }}"#, "<no value>"),
    (
        concat!(
            r#"{{ slice "abcdef" 1 3 }} {{ slice "abcdef" 2 }} {{ slice .list 1 }} {{ slice .list 0 2 }} "#,
            r#"{{ slice "abc" }}"#,
        ),
        "bc cdef [y z] [x y] abc",
    ),
    (
        concat!(
            r#"{{ and 1 0 }} {{ and 1 2 }} {{ or 0 "x" }} {{ or 0 "" }} {{ or 1 2 }} {{ not 1 }} "#,
            r#"{{ not "" }} {{ and true "a" 3 }}"#,
        ),
        "0 2 x  1 false true 3",
    ),
    ("{{ or .t (index .list 99) }}", "true"),
    ("{{ and .f (index .list 99) }}", "false"),
    (r#"{{ 1 | and 2 }} {{ 0 | or "" }}"#, "1 0"),
    (
        concat!(
            r#"{{ eq 1 1 }} {{ eq "a" "b" "a" }} {{ eq 1.5 1.5 }} {{ eq true true }} {{ eq .missing "x" }} "#,
            r#"{{ eq .nil nil }}"#,
        ),
        "true true true true false true",
    ),
    (r#"{{ ne 1 2 }} {{ ne "a" "a" }}"#, "true false"),
    (
        r#"{{ lt 1 2 }} {{ le 2 2 }} {{ gt "b" "a" }} {{ ge 1 2 }} {{ lt 1.5 2.5 }} {{ lt "a" "b" }}"#,
        "true true true false true true",
    ),
    ("{{ eq (len .list) 3 }}", "true"),
    (r#"{{ if and (eq .name "n") (gt .num 3.0) }}both{{ end }}"#, "both"),
    ("{{ if not (or .f .zero) }}neither{{ end }}", "neither"),
    (
        concat!(
            r#"{{ html "<a href='x'>&\"</a>" }} {{ js "it's <b>\"=&\n" }} {{ urlquery "a b&c/é~-_." }} "#,
            r#"{{ "<" | html }} {{ html 1 2 }}"#,
        ),
        concat!(
            r#"&lt;a href=&#39;x&#39;&gt;&amp;&#34;&lt;/a&gt; it\'s \u003Cb\u003E\"\u003D\u0026\u000A a+b%26c%2"#,
            r#"F%C3%A9~-_. &lt; 1 2"#,
        ),
    ),
    (r#"{{ define "T" }}[{{ . }}]{{ end }}{{ template "T" .name }}{{ template "T" }}"#, "[n][<no value>]"),
    (r#"{{ template "later" 3 }}{{ define "later" }}<{{ . }}>{{ end }}"#, "<3>"),
    (r#"{{ define "in" }}{{ $ }}{{ .x }}{{ end }}{{ with .map }}{{ template "in" .deep }}{{ end }}"#, "map[x:y]y"),
    (r#"{{ block "b" .name }}({{ . }}){{ end }}{{ template "b" 5 }}"#, "(n)(5)"),
    (
        concat!(
            r#"{{ define "r" }}{{ if . }}{{ len . }}{{ template "r" (slice . 1) }}{{ end }}{{ end }}{{ template"#,
            r#" "r" "abc" }}"#,
        ),
        "321",
    ),
    (r#"{{ define "e" }}{{ end }}{{ define "e" }}x{{ end }}{{ template "e" }}"#, "x"),
    ("{{ with $x := 1 }}{{ $x }}{{ end }}{{ with 2 }}{{ . }}{{ end }}", "12"),
    (r#"{{ (1) }} {{ ((2)) }} {{ (print 1 2) | len }} {{ len (print (print "a") "b") }}"#, "1 2 3 2"),
    (r#"{{ "a" | print "b" | print "c" }}"#, "cba"),
    ("{{ with .list }}{{ len . }}{{ index . 0 }}{{ end }}", "3x"),
    ("{{range .list}}{{.}}{{end}}{{if .t}}1{{end}}{{with .name}}{{.}}{{end}}", "xyz1n"),
    ("{{range .list -}} {{.}} {{- end}}", "xyz"),
    (r#"{{$a:="x"}}{{$a}}"#, "x"),
    ("{{ 1 | }}", "1"),
    ("{{ range $i, $c := .list }}{{ if $i }}, {{ end }}{{ $c }}{{ end }}", "x, y, z"),
    (r#"{{ split "," "a,b,c" }} {{ split "" "abc" }} {{ len (split "," "") }}"#, "[a b c] [a b c] 0"),
    (r#"{{ range split "," "a,b" }}<{{ . }}>{{ end }}"#, "<a><b>"),
    (
        r#"{{ parseJSON "{\"a\":1,\"b\":[true,null,\"x\"],\"c\":{\"d\":2.5}}" }}"#,
        "map[a:1 b:[true <nil> x] c:map[d:2.5]]",
    ),
    (r#"{{ (parseJSON "[1e3, 12345678, 0.1]") }}"#, "[1000 1.2345678e+07 0.1]"),
    (r#"{{ with parseJSON "{\"a\":{\"b\":\"deep\"}}" }}{{ .a.b }}{{ end }}"#, "deep"),
    ("{{ if eq 1 1 | not }}a{{ else }}b{{ end }}", "b"),
    (r#"{{ $x := 5 | printf "%03d" }}{{ $x }}"#, "005"),
    (r#"{{ not .list | print }} {{ .map.a | printf "%s %s" "x" }}"#, "false x 1"),
    ("{{ range $i, $_ := .list }}{{ $i }}{{ end }}", "012"),
    ("{{ range $k, $v := .map.deep }}{{ $k }}{{ $v }}{{ end }}", "xy"),
    ("{{ if (and .t (not .f)) }}ok{{ end }}", "ok"),
    ("{{ $x := .missing }}{{ $x }}{{ print $x }}", "<no value><nil>"),
    ("{{ 9223372036854775807 }} {{ -9223372036854775808 }}", "9223372036854775807 -9223372036854775808"),
    ("{{ print 1.0 2.5 -0.0 }}", "1 2.5 -0"),
    (
        concat!(
            r#"{{ printf "%v" 1.0 }} {{ printf "%6v|%-6v|" 1 2 }} {{ printf "%08v" 3 }} "#,
            r#"{{ printf "%.2v" "abc" }} {{ printf "%#v" "abc" }} {{ printf "%+v" 3 }}"#,
        ),
        r#"1      1|2     | 00000003 ab "abc" 3"#,
    ),
    (
        concat!(
            r#"{{ printf "%x" "" }} {{ printf "%c%c" 233 128512 }} {{ printf "%.3d|%8.3d|%+.3d" 5 5 5 }} "#,
            r#"{{ printf "%O" 8 }}"#,
        ),
        " é😀 005|     005|+005 0o10",
    ),
    (r#"{{ printf "%s" nil }} {{ printf "%d" nil }} {{ printf "%v" nil }}"#, "%!s(<nil>) %!d(<nil>) <nil>"),
    (
        "{{ toJSON . }}",
        concat!(
            r#"{"big":1234567,"empty":"","f":false,"frac":0.25,"list":["x","y","z"],"map":{"a":"1","b":2,"deep""#,
            r#":{"x":"y"}},"name":"n","nested":[[1,2],[3,4]],"nil":null,"nolist":[],"nomap":{},"num":5,"t":true"#,
            r#","zero":0}"#,
        ),
    ),
    ("{{ toJSONPretty .map }}", "{\n  \"a\": \"1\",\n  \"b\": 2,\n  \"deep\": {\n    \"x\": \"y\"\n  }\n}"),
    (
        concat!(
            r#"{{ toJSON "<&>\u2028\"\\\n\t" }} {{ toJSON 1e21 }} {{ toJSON 0.0000001 }} "#,
            r#"{{ toJSON 1.5 }} {{ toJSON .nil }} {{ toJSON 12345678.0 }} {{ toJSON 1 }}"#,
        ),
        r#""\u003c\u0026\u003e\u2028\"\\\n\t" 1e+21 1e-7 1.5 null 12345678 1"#,
    ),
    ("line one\n{{ if .t -}}\n  two\n{{- end }}\nthree\n", "line one\ntwo\nthree\n"),
    ("{{ range .list }}\n- {{ . }}{{ end }}\n", "\n- x\n- y\n- z\n"),
    ("{{ range .list -}}\n{{ . }}\n{{ end -}}\nend", "x\ny\nz\nend"),
    ("{{ print\n  1\n  2 }}", "1 2"),
    ("{{- range $i, $e := .list }}\nserver {{ $e }};\n{{- end }}\n", "\nserver x;\nserver y;\nserver z;\n"),
    ("A\r\n{{- 1 -}}\r\nB", "A1B"),
    ("\n\n{{- \"x\" }}\n\n{{ \"y\" -}}\n\n z", "x\n\nyz"),
    (
        r#"{{ printf "%x|%X|%.2x|%.0x|%x|%b|%x|%.15x" 1.0 -0.1 3.14159 1.97 0.0 1.5 5e-324 1.5 }}"#,
        concat!(
            "0x1p+00|-0X1.999999999999AP-04|0x1.92p+01|0x1p+01|0x0p+00|6755399441055744p-52|0x1p-1074|0x1.800",
            "000000000000p+00",
        ),
    ),
    (r#"{{ printf "%+q %+q %q" "é☺" 233 233 }}"#, r#""\u00e9\u263a" '\u00e9' 'é'"#),
    (r#"{{ printf "%+v %+v %+v %v" .list .map -1 .frac }}"#, "[x y z] map[a:1 b:2 deep:map[x:y]] -1 0.25"),
    ("{{ $x := 1 }}{{ range $x := .list }}{{ $x }}{{ end }}{{ $x }}", "xyz1"),
    ("{{ range $x := .nolist }}{{ else }}{{ $x }}{{ end }}", "[]"),
    (r#"{{ printf "%6.2f%%|%+.3e|%G" 99.5 12345.678 1e-10 }}"#, " 99.50%|+1.235e+04|1E-10"),
    (r#"{{ printf "%q|%#q|%q" 10 39 "\x7f" }}"#, r#"'\n'|'\''|"\x7f""#),
    ("{{ with $x := .map }}{{ range $k, $v := $x }}{{ $k }}{{ end }}{{ $x.a }}{{ end }}", "abdeep1"),
    (
        r#"{{ printf "%v|%d|%s" .nested .nested .name }}"#,
        "[[1 2] [3 4]]|[[%!d(float64=1) %!d(float64=2)] [%!d(float64=3) %!d(float64=4)]]|n",
    ),
    ("{{ print 1e100 1e-5 123456.0 1234567.0 }}", "1e+100 1e-05 123456 1.234567e+06"),
    (r#"{{ printf "%[1]v %[1]q %v" "a" "b" }}"#, r#"a "a" b"#),
    (r#"{{ printf "%.*f|%.[2]*[1]f" 2 3.14159 2 }}"#, "3.14|%!(BADPREC)%!f(int=2)"),
    (
        r#"{{ printf "%010.3f|%-10d|%+05d|% 05d|%x|%-8q|%08q" -3.14159 7 7 7 "é" "a" "b" }}"#,
        r#"-00003.142|7         |+0007| 0007|c3a9|"a"     |00000"b""#,
    ),
];

#[test]
fn templates_render_as_in_go() {
    let mut wrong = Vec::new();
    for (template, expected) in CASES {
        match render_data(template, DATA) {
            Ok(out) if out == *expected => {}
            other => wrong.push(format!("{template:?}\n  expected {expected:?}\n  got      {other:?}")),
        }
    }
    assert!(CASES.len() >= 120 && wrong.is_empty(), "{}", wrong.join("\n"));
}
