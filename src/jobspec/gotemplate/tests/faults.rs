//! Templates that Go refuses too.

use super::{DATA, render_data};

#[rustfmt::skip]
const REFUSED: &[&str] = &[
    "{{",
    "{{ ",
    "{{ }}",
    "{{ end }}",
    "{{ else }}",
    "{{ if }}{{ end }}",
    "{{ if 1 }}",
    "{{ if 1 }}{{ else }}{{ else }}{{ end }}",
    "{{ range .x }}{{ else if 1 }}{{ end }}",
    "{{ break }}",
    "{{ continue }}",
    "{{ if 1 }}{{ break }}{{ end }}",
    r#"{{ define "a" }}"#,
    r#"{{ if 1 }}{{ define "a" }}{{ end }}{{ end }}"#,
    "{{ define a }}{{ end }}",
    "{{ template }}",
    "{{ template x }}",
    r#"{{ template "none" }}"#,
    r#"{{ block "b" }}{{ end }}"#,
    r#"{{ "unclosed }}"#,
    "{{ `unclosed }}",
    "{{ 'ab' }}",
    "{{ '' }}",
    r#"{{ "\q" }}"#,
    "{{ 1x }}",
    "{{ 0b12 }}",
    "{{ 09 }}",
    "{{ 99999999999999999999 }}",
    "{{ 1.2.3 }}",
    "{{ $x }}",
    "{{ $x = 1 }}",
    "{{ $x, $y := 1 }}",
    "{{ range $a, $b, $c := .list }}{{ end }}",
    "{{ if 1 }}{{ $x := 1 }}{{ end }}{{ $x }}",
    "{{ (1 }}",
    "{{ 1) }}",
    "{{ () }}",
    "{{ .name.missing }}",
    "{{ | 1 }}",
    "{{ 1 | 2 }}",
    r#"{{ print 1 | "x" }}"#,
    "{{ print 1 | . }}",
    "{{ .a .b.c d }}",
    "{{ nil }}",
    "{{ nil | print }}",
    "{{ 1 2 }}",
    "{{ .name 1 }}",
    "{{ 1.a }}",
    r#"{{ "a".b }}"#,
    "{{ true.x }}",
    "{{ nofunction 1 }}",
    r#"{{ eq 1 "a" }}"#,
    "{{ eq 1 1.0 }}",
    "{{ lt true false }}",
    r#"{{ lt 1 "a" }}"#,
    "{{ eq .list .list }}",
    "{{ eq 1 }}",
    "{{ not }}",
    "{{ not 1 2 }}",
    "{{ and }}",
    "{{ len 3 }}",
    "{{ len nil }}",
    "{{ index .list 3 }}",
    "{{ index .list -1 }}",
    r#"{{ index .list "a" }}"#,
    "{{ index .map 1 }}",
    "{{ index 1 1 }}",
    "{{ index nil 1 }}",
    r#"{{ slice "abc" 2 1 }}"#,
    r#"{{ slice "abc" 4 }}"#,
    "{{ slice 1 }}",
    r#"{{ slice "abc" 0 1 2 }}"#,
    "{{ range 1.5 }}{{ end }}",
    r#"{{ range "abc" }}{{ end }}"#,
    "{{ range true }}{{ end }}",
    "{{ loop 3 }}",
    "{{ .name.x.y }}",
    "{{ printf 1 }}",
    "{{ printf }}",
    "{{/* unclosed }}",
    "{{/* a */ b }}",
    "{{ @ }}",
    "{{ a-b }}",
    "{{ $x := }}",
    "{{ if $x := }}{{ end }}",
    "{{ print(1) }}",
    "{{ end 1 }}",
    "{{ if 1 }}{{ end x }}",
    "{{ with }}{{ end }}",
    r#"{{ define "d" }}x{{ end }}{{ define "d" }}y{{ end }}"#,
    "{{ (print 1) 2 }}",
    "{{ 1 | (print) }}",
    "{{ else 1 }}",
    "{{ $ := 1 }}{{ $.x.y }}",
    r#"{{ "a" "b" }}"#,
    "{{ ... }}",
    "{{ ..a }}",
    "{{ .a..b }}",
    "{{ 1,2 }}",
    "{{ print 1, 2 }}",
    "{{ x := 1 }}",
    "{{ $x:=1 $y:=2 }}",
    "{{ $x := 1 | $y := 2 }}",
    r#"{{ template "a" | }}"#,
    "{{ 0x }}",
    "{{ 1e }}",
    "{{ 1i }}",
    r#"{{ '\400' }}"#,
    r#"{{ print "a"b }}"#,
    r#"{{ .a"b" }}"#,
    r#"{{ ."a" }}"#,
    "{{ if .t }}{{ else }}{{ if 1 }}{{ end }}",
];

#[test]
fn template_that_go_refuses_is_a_fault_with_a_place() {
    for template in REFUSED {
        match render_data(template, DATA) {
            Ok(out) => panic!("{template:?} renders {out:?}"),
            Err(fault) => {
                assert!(fault.line == 1 && fault.column >= 1 && !fault.message.is_empty(), "{template:?}: {fault}");
                assert!(fault.span.end <= template.len() && !fault.waits, "{template:?}: {fault:?}");
            }
        }
    }
}

/// Template, line, column, a part of what the fault says.
#[rustfmt::skip]
const PLACED: &[(&str, usize, usize, &str)] = &[
    ("a\nb {{ nope 1 }}", 2, 6, "there is no function nope"),
    ("é {{ toUper \"x\" }}", 1, 6, "did you mean toUpper?"),
    ("{{ upper \"x\" }}", 1, 4, "functions of sprig have a prefix: sprig_upper"),
    (
        "\n{{ range service \"web\" }}{{ .Address }}{{ end }}",
        2,
        10,
        "service is not supported: allostat has no Consul here",
    ),
    ("{{ with secret \"a/b\" }}{{ .Data.x }}{{ end }}", 1, 9, "use env, key from the key tree"),
    (
        "{{ range nomadService \"x\" }}{{ end }}",
        1,
        10,
        "nomadService is not supported: allostat has no Nomad servers here",
    ),
    ("{{ with nomadVar \"nomad/jobs\" }}{{ end }}", 1, 9, "use key, keyOrDefault or tree"),
    ("{{ if false }}{{ range connect \"x\" }}{{ end }}{{ end }}", 1, 24, "GET /v1/services"),
    ("{{ range caRoots }}{{ end }}", 1, 10, "no Consul"),
    ("{{ with caLeaf \"x\" }}{{ end }}", 1, 9, "no Consul"),
    ("{{ with pkiCert \"x\" }}{{ end }}", 1, 9, "no Vault"),
    ("{{ datacenters }}", 1, 4, "NOMAD_DC"),
    ("{{ node.Node.Node }}", 1, 4, "no Consul"),
    ("{{ call .f }}", 1, 4, "use define and template"),
    ("{{ \"x\" | writeToFile \"a\" \"b\" \"c\" \"d\" }}", 1, 10, "second template stanza"),
    ("{{ byTag .x }}", 1, 4, "byTag is not supported"),
    ("{{ plugin \"x\" }}", 1, 4, "prestart task"),
    ("{{ mustEnv \"ABSENT\" }}", 1, 4, "\"ABSENT\" is not set"),
    ("{{ file \"none\" }}", 1, 4, "file: none: no such file"),
    ("{{ key \"a@dc1\" }}", 1, 4, "another datacenter"),
    ("{{ base64Decode \"%\" }}", 1, 4, "no base64"),
    ("{{ base64Decode \"/w==\" }}", 1, 4, "not UTF-8"),
    ("{{ 1 | divide 0 }}", 1, 8, "division by zero"),
    ("{{ 1 | modulo 0 }}", 1, 8, "division by zero"),
    ("{{ add \"1\" 2 }}", 1, 4, "it takes numbers, not string"),
    ("{{ toUpper 1 }}", 1, 4, "argument 1 must be string, not int"),
    ("{{ toUpper }}", 1, 4, "toUpper takes 1 argument, not 0"),
    ("{{ parseJSON \"{\" }}", 1, 4, "no JSON"),
    ("{{ parseYAML \"a: &x 1\" }}", 1, 4, "anchors"),
    ("{{ parseYAML \"{a: [}\" }}", 1, 4, "no YAML"),
    ("{{ parseInt \"x\" }}", 1, 4, "no whole number"),
    ("{{ regexMatch \"(\" \"x\" }}", 1, 4, "no regular expression"),
    ("{{ indent -1 \"x\" }}", 1, 4, "not negative"),
    ("{{ loop 3 | toJSON }}", 1, 13, "no form in JSON"),
    ("{{ (index (ls \"app\") 0).Nope }}", 1, 4, "it has Path, Key, Value"),
    ("{{ scratch.Nope 1 }}", 1, 4, "MapValues"),
    ("{{ scratch.Set 1 }}", 1, 4, "takes 2 arguments, not 1"),
    ("{{ executeTemplate \"none\" }}", 1, 4, "template \"none\" is not defined"),
    ("{{ sprig_fail \"no port\" }}", 1, 4, "no port"),
    ("{{ index .list 1 }}", 1, 4, "nil has no index"),
    ("x\n\n  {{ if }}", 3, 9, "missing value for if"),
    ("{{ if true }}", 1, 4, "{{if}} has no {{end}}"),
    ("{{ \"a\nb\" }}", 1, 4, "no closing quote on its line"),
    ("{{ explode 1 }}", 1, 4, "must be a list"),
    ("{{ slice \"é\" 0 1 }}", 1, 4, "cuts a character"),
    ("{{ gt 1 \"2\" }}", 1, 4, "int and string do not compare"),
];

#[test]
fn faults_have_place_and_advice() {
    for (template, line, column, part) in PLACED {
        let fault = super::render(template).expect_err(template);
        let shown = fault.to_string();
        assert!(shown.contains(part), "{template:?}: {shown}");
        assert_eq!((fault.line, fault.column), (*line, *column), "{template:?}: {shown}");
    }
}

#[test]
fn all_refused_functions_are_reported_at_once() {
    let template = "{{ range service \"a\" }}{{ end }}\n{{ nope }}\n{{ with secret \"b\" }}{{ end }}";
    let faults =
        crate::jobspec::gotemplate::GoTemplate::parse(template, &Default::default()).expect_err("it must be refused");
    let lines: Vec<usize> = faults.iter().map(|fault| fault.line).collect();
    assert_eq!(lines, [1, 2, 3]);
}

#[test]
fn absent_keys_are_waited_for() {
    for template in
        ["{{ key \"none\" }}", "{{ range safeLs \"none\" }}{{ end }}", "{{ range safeTree \"none\" }}{{ end }}"]
    {
        let fault = super::render(template).expect_err(template);
        assert!(fault.waits && fault.column > 1, "{fault}");
    }
    assert!(!super::render("{{ mustEnv \"ABSENT\" }}").expect_err("it must fail").waits);
}

#[test]
fn error_on_missing_key_makes_missing_keys_faults() {
    let options = crate::jobspec::gotemplate::TemplateOptions { error_on_missing_key: true, ..Default::default() };
    let render = |template: &str| {
        let parsed = crate::jobspec::gotemplate::GoTemplate::parse(template, &options).expect(template);
        parsed.render(&super::Fixture::default())
    };
    for template in ["{{ .a }}", "{{ (sprig_dict \"a\" 1).b }}", "{{ $x := sprig_dict \"a\" 1 }}{{ $x.b.c }}"] {
        let message = render(template).expect_err(template).message;
        assert!(message.contains("no entry for key"), "{message}");
    }
    assert_eq!(render("{{ (sprig_dict \"a\" 1).a }}").expect("it must render"), "1");
}

#[test]
fn template_delimiters_are_configurable() {
    let options = |left: &str, right: &str| crate::jobspec::gotemplate::TemplateOptions {
        left_delimiter: left.to_owned(),
        right_delimiter: right.to_owned(),
        error_on_missing_key: false,
    };
    for (left, right, template, expected) in [
        ("[[", "]]", "{{ x }} [[ 1 ]]  [[- 2 -]]  a[[/* c */]]", "{{ x }} 12a"),
        ("<%", "%>", "<%if true%>a<%end%>", "a"),
        ("", "", "{{ 1 }}", "1"),
        ("$", "$", "a $ 1 $ b", "a 1 b"),
    ] {
        let parsed = crate::jobspec::gotemplate::GoTemplate::parse(template, &options(left, right)).expect(template);
        assert_eq!(parsed.render(&super::Fixture::default()).expect(template), expected);
    }
}
