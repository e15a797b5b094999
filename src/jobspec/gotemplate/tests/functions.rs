//! The functions of consul-template and sprig.

use super::{GoTemplate, TemplateOptions, render};

#[rustfmt::skip]
const CASES: &[(&str, &str)] = &[
    (
        concat!(
            r#"{{ env "NOMAD_TASK_NAME" }}|{{ env "ABSENT" }}|{{ envOrDefault "ABSENT" "d" }}|{{ envOrDefault ""#,
            r#"EMPTY" "d" }}"#,
        ),
        "web||d|",
    ),
    (r#"{{ mustEnv "PORT" }}"#, "8080"),
    (r#"{{ file "local/a.txt" | trimSpace }}{{ file "" }}"#, "from a file"),
    (r#"{{ key "app/color" }}{{ key "/app/color" }}{{ key "" }}"#, "blueblue"),
    (r#"{{ keyExists "app/color" }} {{ keyExists "none" }} {{ keyExists "" }}"#, "true false false"),
    (
        r#"{{ keyOrDefault "app/color" "d" }} {{ keyOrDefault "none" "d" }} {{ keyOrDefault "app/empty" "d" }}"#,
        "blue d d",
    ),
    (r#"{{ range ls "app" }}{{ .Key }}={{ .Value }} {{ .Path }};{{ end }}"#, "color=blue app/color;empty= app/empty;"),
    (r#"{{ range tree "app" }}{{ .Key }}={{ .Value }};{{ end }}"#, "color=blue;db/host=h1;db/port=5432;empty=;"),
    (r#"{{ range ls "none" }}x{{ else }}none{{ end }}{{ range ls "" }}x{{ end }}"#, "none"),
    (r#"{{ range safeLs "app/db" }}{{ .Key }} {{ end }}{{ range safeTree "app/" }}.{{ end }}"#, "host port ...."),
    (r#"{{ with tree "app" | explode }}{{ .color }} {{ .db.host }}{{ end }}"#, "blue h1"),
    (
        concat!(
            r#"{{ range $top, $pairs := tree "app" | byKey }}{{ $top }}:{{ range $k, $p := $pairs }} "#,
            r#"{{ $k }}={{ .Value }}{{ end }}{{ end }}"#,
        ),
        "db: host=h1 port=5432",
    ),
    (r#"{{ tree "app" | explode | toJSON }}"#, r#"{"color":"blue","db":{"host":"h1","port":"5432"},"empty":""}"#),
    (r#"{{ explodeMap (sprig_dict "a/b" 1 "a/c" 2 "d" 3) }}"#, "map[a:map[b:1 c:2] d:3]"),
    (
        concat!(
            r#"{{ base64Encode "hi?>" }} {{ base64Decode "aGk/Pg==" }} {{ base64URLEncode "hi?>" }} "#,
            r#"{{ base64URLDecode "aGk_Pg==" }}"#,
        ),
        "aGk/Pg== hi?> aGk_Pg== hi?>",
    ),
    (
        concat!(
            r#"{{ in (split "," "a,b") "a" }} {{ "abc" | contains "b" }} {{ split "," "a,b" | contains "c" }} "#,
            r#"{{ in 5 5 }}"#,
        ),
        "true true false false",
    ),
    (
        concat!(
            r#"{{ $l := split "," "a,b,c" }}{{ containsAll (split "," "a,b") $l }} {{ containsAny (split "," "x"#,
            r#",b") $l }} {{ containsNone (split "," "x") $l }} {{ containsNotAll (split "," "a,x") $l }}"#,
        ),
        "true true true true",
    ),
    (
        concat!(
            r#"{{ $l := split "," "a,b,c" }}{{ containsAll (split "," "a,x") $l }} {{ containsAny (split "," "x"#,
            r#",y") $l }} {{ containsNone (split "," "a") $l }} {{ containsNotAll (split "," "a") $l }}"#,
        ),
        "false false false false",
    ),
    (r#"{{ split "," " a,b " | join "-" }} {{ "a=1,b=2,c" | splitToMap "," "=" }}"#, "a-b map[a:1 b:2]"),
    (r#"{{ index ("a=1" | splitToMap "," "=") "none" }}<{{ (splitToMap "," "=" "a=1").none }}>"#, "<<no value>>"),
    (
        concat!(
            r#"{{ trim "xy" "xaxyb" }} {{ "pre-a" | trimPrefix "pre-" }} {{ "a.x" | trimSuffix ".x" }} "#,
            r#"[{{ trimSpace "  a\n" }}]"#,
        ),
        "axyb a a [a]",
    ),
    (
        r#"{{ toLower "AbÉ" }} {{ toUpper "abé" }} {{ toTitle "hello big-world don't" }}"#,
        "abé ABÉ Hello Big-World Don't",
    ),
    (r#"{{ "foo.bar.x" | replaceAll "." "_" }} {{ replaceAll "" "-" "ab" }}"#, "foo_bar_x -a-b-"),
    (
        concat!(
            r#"{{ "foobar" | regexMatch "^foo" }} {{ regexMatch "x" "y" }} {{ "foo.bar" | regexReplaceAll "(o+)"#,
            r#"\\." "<${1}>" }} {{ regexReplaceAll "a*" "x" "baac" }}"#,
        ),
        "true false f<oo>bar xbxcx",
    ),
    ("{{ \"a\\n\\nb\\n\" | indent 2 }}|", "  a\n\n  b\n|"),
    (
        concat!(
            r#"{{ range loop 3 }}{{ . }}{{ end }} {{ range $i := loop 2 "4" }}{{ $i }}{{ end }} "#,
            r#"{{ range loop 5 5 }}x{{ end }}"#,
        ),
        "012 23 ",
    ),
    (
        concat!(
            r#"{{ range 3 }}{{ . }}{{ end }} {{ range $i := 2 }}{{ $i }}{{ end }}{{ range 0 }}x{{ else }}none{{"#,
            r#" end }}{{ range -1 }}x{{ end }}"#,
        ),
        "012 01none",
    ),
    (r#"{{ with "" }}a{{ else with "b" }}{{ . }}{{ else }}c{{ end }}"#, "b"),
    (
        concat!(
            r#"{{ parseBool "true" }} {{ parseBool "" }} {{ parseFloat "1.50" }} {{ parseInt "-7" }} "#,
            r#"{{ parseUint "7" }} {{ parseInt "" }}"#,
        ),
        "true false 1.5 -7 7 0",
    ),
    (
        r#"{{ with parseJSON "{\"a\":[1,\"b\"]}" }}{{ index .a 0 }}{{ index .a 1 }}{{ end }}{{ parseJSON "" }}"#,
        "1bmap[]",
    ),
    (
        concat!(
            r#"{{ $y := parseYAML "a: 1\nb: [x, 'y', 2.5, yes, ~, 010, 0x1f, 1_000]\nc:\n  - d: 1e3\n" }}{{ $y."#,
            r#"a }} {{ $y.b }} {{ $y.c }}"#,
        ),
        "1 [x y 2.5 true <nil> 8 31 1000] [map[d:1000]]",
    ),
    (
        r#"{{ parseYAML "" }} {{ parseYAML "- 1\n- a" }} {{ (parseYAML "port: 8080").port | printf "%d" }}"#,
        "map[] [1 a] 8080",
    ),
    (
        r#"{{ sprig_dict "b" "<&>" "a" 1 | toJSON }} {{ sprig_dict "b" "<&>" | toUnescapedJSON }}"#,
        r#"{"a":1,"b":"\u003c\u0026\u003e"} {"b":"<&>"}"#,
    ),
    (
        "{{ sprig_dict \"l\" (sprig_list 1 \"x\") \"e\" (sprig_list) | toJSONPretty }}",
        "{\n  \"e\": [],\n  \"l\": [\n    1,\n    \"x\"\n  ]\n}",
    ),
    (
        concat!(
            "{{ sprig_dict \"b\" (sprig_list 1 \"x\") \"a\" (sprig_dict \"k\" \"yes\" \"n\" nil) \"t\" \"a: b",
            "\" \"u\" \"two\\nlines\\n\" | toYAML }}",
        ),
        "a:\n  k: \"yes\"\n  \"n\": null\nb:\n- 1\n- x\nt: 'a: b'\nu: |\n  two\n  lines\n",
    ),
    (r#"{{ sprig_list (sprig_dict "a" 1 "b" (sprig_list 2)) (sprig_list) | toYAML }}"#, "- a: 1\n  b:\n  - 2\n- []"),
    (
        r#"{{ parseJSON "{\"t\":{\"u\":{\"x\":1},\"k\":true},\"a\":\"q\\\"\",\"n\":null,\"f\":2.0,\"l\":[1,[\"b\"]],\"e\":[]}" | toTOML }}"#,
        "a = \"q\\\"\"\ne = []\nf = 2.0\nl = [1.0, [\"b\"]]\n\n[t]\n  k = true\n  [t.u]\n    x = 1.0\n",
    ),
    (
        r#"{{ sprig_dict "a b" 1 "s" (sprig_list (sprig_dict "x" 1) (sprig_dict "x" (sprig_list 2 3))) | toTOML }}"#,
        "\"a b\" = 1\n\n[[s]]\n  x = 1\n\n[[s]]\n  x = [2, 3]\n",
    ),
    (r#"{{ sprig_now }}"#, "2024-02-29 13:05:09.123456789 +0000 UTC"),
    (r#"{{ sprig_now | sprig_date "2006-01-02" }} {{ sprig_date "15:04" 3600 }}"#, "2024-02-29 01:00"),
    (r#"{{ sprig_env "PORT" }}-{{ sprig_env "NONE" }}"#, "8080-"),
    (r#"{{ timestamp }} {{ timestamp "unix" }}"#, "2024-02-29T13:05:09Z 1709211909"),
    (
        concat!(
            r#"{{ timestamp "Mon Jan _2 15:04:05.000 MST 2006" }}|{{ timestamp "Monday, 02-January-06 03:04pm -"#,
            r#"0700 -07:00" }}|{{ timestamp "2006-002 1/2 3PM .999999" }}"#,
        ),
        "Thu Feb 29 13:05:09.123 UTC 2024|Thursday, 29-February-24 01:05pm +0000 +00:00|2024-060 2/29 1PM .123456",
    ),
    (
        concat!(
            r#"{{ add 1 2 }} {{ 5 | subtract 2 }} {{ multiply 3 4 }} {{ 7 | divide 2 }} "#,
            r#"{{ 7 | modulo 4 }} {{ minimum 1 2 }} {{ maximum 1 2 }}"#,
        ),
        "3 3 12 3 3 1 2",
    ),
    (
        concat!(
            r#"{{ add 1 2.5 }} {{ 1.5 | divide 2 }} {{ add (parseUint "1") (parseUint "2") }} "#,
            r#"{{ subtract (parseUint "3") 1 }} {{ divide 0.0 1 }}"#,
        ),
        "3.5 0.75 3 -2 +Inf",
    ),
    (r#"{{ md5sum "hello" }}"#, "5d41402abc4b2a76b9719d911017c592"),
    (r#"{{ sha256Hex "bladibla" }}"#, "54cf4c66bcabb5c20e25331c01dd600b73369e97a947861bd8d3a0e0b8b3d70b"),
    (
        r#"{{ hmacSHA256Hex "The quick brown fox jumps over the lazy dog" "key" }}"#,
        "f7bc83f430538424b13298e6aa6fb143ef4d59a14946175997479dbc2d1a3cd8",
    ),
    (
        concat!(
            r#"{{ scratch.Set "a" 1 }}{{ scratch.Key "a" }} {{ scratch.Get "a" }} {{ scratch.Get "b" }} "#,
            r#"{{ scratch.Key "b" }}"#,
        ),
        "true 1 <no value> false",
    ),
    (
        concat!(
            r#"{{ scratch.SetX "a" 1 }}{{ scratch.SetX "a" 2 }}{{ scratch.Get "a" }}{{ "v" | scratch.Set "p" }}"#,
            r#"{{ $s := scratch }}{{ $s.Get "p" }}"#,
        ),
        "1v",
    ),
    (
        concat!(
            r#"{{ scratch.MapSet "m" "b" 2 }}{{ scratch.MapSet "m" "a" 1 }}{{ scratch.MapSetX "m" "a" 9 }}{{ ra"#,
            r#"nge scratch.MapValues "m" }}{{ . }} {{ end }}{{ (scratch.Get "m").b }}"#,
        ),
        "1 2 2",
    ),
    (
        concat!(
            r#"{{ define "t" }}<{{ . }}>{{ end }}{{ executeTemplate "t" "x" | toUpper }}{{ $o := executeTemplat"#,
            r#"e "t" }}{{ len $o }}"#,
        ),
        "<X>12",
    ),
    (
        r#"{{ mergeMap (sprig_dict "a" 1 "m" (sprig_dict "x" 1)) (sprig_dict "a" 2 "b" 3 "m" (sprig_dict "y" 2)) }}"#,
        "map[a:1 b:3 m:map[x:1 y:2]]",
    ),
    (r#"{{ mergeMapWithOverride (sprig_dict "a" 1) (sprig_dict "a" 2) }}"#, "map[a:2]"),
    (
        concat!(
            r#"{{ sprig_default "d" "" }} {{ sprig_default "d" "v" }} {{ "" | sprig_default "p" }} "#,
            r#"{{ sprig_coalesce "" 0 "c" }} {{ sprig_empty "" }}"#,
        ),
        "d v p c true",
    ),
    (
        concat!(
            r#"{{ sprig_ternary "y" "n" true }} {{ false | sprig_ternary "y" "n" }} {{ sprig_quote "a\"b" 1 }} "#,
            r#"{{ sprig_squote "x" }}"#,
        ),
        r#"y n "a\"b" "1" 'x'"#,
    ),
    (
        concat!(
            r#"{{ sprig_upper "a" }} {{ sprig_lower "A" }} {{ sprig_trim " x " }} {{ sprig_title "ab cd" }} "#,
            r#"{{ sprig_trimAll "$" "$5$" }} {{ sprig_nospace "a b" }} {{ sprig_repeat 3 "ab" }} "#,
            r#"{{ sprig_trunc 2 "abc" }} {{ sprig_trunc -2 "abc" }}"#,
        ),
        "A a x Ab Cd 5 ab ababab ab bc",
    ),
    ("a:{{ \"x\\ny\" | sprig_nindent 2 }}\n{{ \"x\\ny\" | sprig_indent 1 }}", "a:\n  x\n  y\n x\n y"),
    (
        r#"{{ sprig_b64enc "hi" }} {{ sprig_b64dec "aGk=" }} {{ sprig_sha256sum "" | sprig_trunc 8 }}"#,
        "aGk= hi e3b0c442",
    ),
    (
        concat!(
            r#"{{ sprig_list 1 "a" }} {{ sprig_dict "k" 1 "odd" }} {{ sprig_join "-" (sprig_list 1 "b") }} "#,
            r#"{{ sprig_splitList "," "a,b" }} {{ sprig_until 3 }} {{ sprig_until -2 }}"#,
        ),
        "[1 a] map[k:1 odd:] 1-b [a b] [0 1 2] [0 -1]",
    ),
    (
        concat!(
            r#"{{ sprig_replace "a" "b" "aa" }} {{ sprig_contains "a" "cat" }} {{ sprig_hasPrefix "c" "cat" }} "#,
            r#"{{ sprig_hasSuffix "c" "cat" }} {{ sprig_regexFind "[0-9]+" "ab12c" }}"#,
        ),
        "bb true true false 12",
    ),
    (
        concat!(
            r#"{{ sprig_add 1 2 "3" }} {{ sprig_sub 5 2 }} {{ sprig_mul 2 3 4 }} {{ sprig_div 7 2 }} "#,
            r#"{{ sprig_mod 7 4 }} {{ sprig_int "12" }} {{ sprig_int 3.9 }} {{ sprig_toString 5 | len }} "#,
            r#"{{ sprig_max 1 3 2 }} {{ sprig_min 2 1 }} {{ sprig_add1 1 }}"#,
        ),
        "6 3 24 3 3 12 3 1 3 1 2",
    ),
    (
        concat!(
            r#"{{ $l := sprig_list "b" "a" "c" }}{{ sprig_first $l }}{{ sprig_last $l }} "#,
            r#"{{ sprig_rest $l }} {{ sprig_initial $l }} {{ sprig_append $l 1 }} {{ sprig_prepend $l 1 }} "#,
            r#"{{ sprig_reverse $l }} {{ sprig_sortAlpha $l }} {{ sprig_has "a" $l }} "#,
            r#"{{ sprig_concat $l $l | len }}"#,
        ),
        "bc [a c] [b a] [b a c 1] [1 b a c] [c a b] [a b c] true 6",
    ),
    (
        concat!(
            r#"{{ $d := sprig_dict "a" 1 "b" 2 }}{{ sprig_get $d "a" }}{{ sprig_hasKey $d "x" }} "#,
            r#"{{ sprig_keys $d }} {{ sprig_values $d }} {{ sprig_pick $d "a" }} {{ sprig_omit $d "a" }}"#,
        ),
        "1false [a b] [1 2] map[a:1] map[b:2]",
    ),
    (
        concat!(
            "{{ with $e := env \"NOMAD_TASK_NAME\" -}}\nTASK={{ $e | toUpper }}\n{{- end }}\n{{ range $i, $n ",
            ":= split \",\" \"a,b\" -}}\nNODE_{{ $i }}={{ $n }}\n{{ end }}",
        ),
        "TASK=WEB\nNODE_0=a\nNODE_1=b\n",
    ),
    (
        concat!(
            "bind *:{{ env \"PORT\" }}\n{{- range $i := loop 2 }}\nserver s{{ add $i 1 }} ",
            "127.0.0.1:{{ add 9000 $i }}{{ end }}\n",
        ),
        "bind *:8080\nserver s1 127.0.0.1:9000\nserver s2 127.0.0.1:9001\n",
    ),
    (
        concat!(
            r#"{{ sprig_atoi "x" }} {{ sprig_int64 "7" }} {{ sprig_fromJson "[1]" }} {{ sprig_toJson "<" }} "#,
            r#"{{ sprig_toRawJson "<" }} {{ sprig_trimPrefix "a" "ab" }} {{ sprig_trimSuffix "b" "ab" }} "#,
            r#"{{ sprig_regexMatch "^a" "ab" }}"#,
        ),
        r#"0 7 [1] "\u003c" "<" b a true"#,
    ),
    (
        r#"{{ sprig_toPrettyJson (sprig_list 1) }}{{ toUnescapedJSONPretty (sprig_list "<") }}"#,
        "[\n  1\n][\n  \"<\"\n]",
    ),
    (r#"{{ parseYAML "a: |\n  x\n  y\nb: >-\n  p\n  q\n" | toJSON }}"#, r#"{"a":"x\ny\n","b":"p q"}"#),
    (r#"{{ . }}{{ .a.b }}{{ $ }}"#, "<no value><no value><no value>"),
];

#[test]
fn functions_yield_what_consul_template_documents() {
    let mut wrong = Vec::new();
    for (template, expected) in CASES {
        match render(template) {
            Ok(out) if out == *expected => {}
            other => wrong.push(format!("{template:?}\n  expected {expected:?}\n  got      {other:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_function_has_a_case_or_a_name_in_another_table() {
    let all = [
        include_str!("functions.rs"),
        include_str!("language.rs"),
        include_str!("bounds.rs"),
        include_str!("faults.rs"),
        include_str!("sockaddr.rs"),
    ]
    .concat();
    let is_used = |name: &&str| all.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == *name);
    let unused: Vec<_> =
        crate::jobspec::gotemplate::function_names().into_iter().filter(|name| !is_used(name)).collect();
    assert!(unused.is_empty(), "no test uses {unused:?}");
}

#[test]
fn template_functions_that_read_changing_data_are_listed_with_their_place() {
    let parsed = |text: &str| GoTemplate::parse(text, &TemplateOptions::default()).unwrap();
    for text in ["plain", "{{ env \"A\" }}", "{{ timestamp }}"] {
        assert!(!parsed(text).reads_outside(), "{text}");
    }
    let file = parsed("{{ file \"local/a\" }}");
    assert!(file.reads_outside() && file.key_function().is_none());
    let key = parsed("a\n{{ define \"t\" }}{{ if (keyExists \"b\") }}{{ end }}{{ end }}\n{{ ls \"a\" }}");
    assert_eq!(key.key_function(), Some(("keyExists", 2, 24)));
}
