//! Hostile templates end in a fault: no panic, no overflow, no memory, no time without end.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::{DATA, Fixture, render, render_data};
use crate::jobspec::gotemplate::{GoTemplate, TemplateOptions};

#[test]
fn template_rendering_past_its_deadline_is_a_fault() {
    let parsed = GoTemplate::parse("{{ range loop 3 }}x{{ end }}", &TemplateOptions::default()).unwrap();
    let until = |deadline| parsed.render(&Fixture { deadline: Some(deadline), ..Fixture::default() });
    assert!(until(Instant::now()).unwrap_err().message.contains("too long"));
    assert_eq!(until(Instant::now() + Duration::from_secs(600)).unwrap(), "xxx");
}

/// As it is parsed: no step is executed.
#[test]
fn parse_after_its_deadline_is_a_fault() {
    let until = |text: &str, deadline| {
        GoTemplate::parse_until(text, &TemplateOptions::default(), Some(deadline)).map_err(|faults| faults[0].clone())
    };
    let (past, later) = (Instant::now(), Instant::now() + Duration::from_secs(600));
    for text in ["{{ .a }}", "{{ if false }}{{ sockaddr \"GetPrivateIP\" }}{{ end }}", "{{ range $x := nope }}"] {
        assert_eq!(until(text, past).expect_err(text).message, "it takes too long", "{text}");
    }
    assert!(until("{{ .a }}", later).is_ok());
}

#[test]
fn parse_stops_after_16_faults() {
    let pipelines = "{{ sockaddr \"x\" }}".repeat(10_000);
    let functions = format!("{{{{ {}}}}}", "nope ".repeat(10_000));
    for text in [pipelines, functions] {
        let faults = GoTemplate::parse(&text, &TemplateOptions::default()).expect_err("it must be refused");
        assert_eq!(faults.len(), 16, "{}", faults[0]);
        assert!(faults.windows(2).all(|two| two[0].column < two[1].column), "in file order: {faults:?}");
    }
}

#[test]
fn template_that_costs_too_much_is_a_fault() {
    let deep_if = "{{ if 1 }}".repeat(5_000);
    let deep_parentheses = format!("{{{{ {}1{} }}}}", "(".repeat(5_000), ")".repeat(5_000));
    let long = "y".repeat(5 << 20);
    let cases = [
        ("{{ range loop 10000000000 }}{{ end }}", "steps"),
        ("{{ range $i := 9223372036854775807 }}{{ end }}", "steps"),
        (r#"{{ define "a" }}{{ template "a" }}{{ end }}{{ template "a" }}"#, "deeper than 100"),
        (r#"{{ define "a" }}{{ executeTemplate "a" }}{{ end }}{{ template "a" }}"#, "deeper than 100"),
        (
            concat!(
                r#"{{ define "a" }}{{ template "b" }}{{ end }}{{ define "b" }}{{ range loop 2 }}{{ template "a" }}{"#,
                r#"{ end }}{{ end }}{{ template "a" }}"#,
            ),
            "deeper than 100",
        ),
        (r#"{{ $x := "aaaaaaaa" }}{{ range loop 60 }}{{ $x = print $x $x }}{{ end }}"#, "MiB"),
        (r#"{{ $x := sprig_list 1 }}{{ range loop 90 }}{{ $x = sprig_list $x $x }}{{ end }}{{ $x }}"#, "MiB"),
        (r#"{{ $x := sprig_list }}{{ range loop 5000 }}{{ $x = sprig_list $x }}{{ end }}"#, "deeper than 100"),
        (r#"{{ range loop 5000 }}{{ scratch.MapSet "m" "k" (scratch.Get "m") }}{{ end }}"#, "deeper than 100"),
        (r#"{{ replaceAll "" (sprig_repeat 1000000 "x") (sprig_repeat 1000000 "y") }}"#, "MiB"),
        (r#"{{ sprig_repeat 9223372036854775807 "x" }}"#, "MiB"),
        (r#"{{ indent 9223372036854775807 "x" }}"#, "MiB"),
        (r#"{{ regexReplaceAll "" (sprig_repeat 1000000 "x") (sprig_repeat 1000 "y") }}"#, "MiB"),
        (r#"{{ regexReplaceAll "(?s).*" (sprig_repeat 100000 "$0") (sprig_repeat 1000000 "x") }}"#, "MiB"),
        (r#"{{ printf "%10000d" (sprig_until 200000) }}"#, "MiB"),
        (
            concat!(
                "{{ $x := sprig_until 150000 }}{{ range loop 95 }}{{ $x = sprig_list $x }}{{ end }}",
                "{{ sprig_toPrettyJson $x }}",
            ),
            "MiB",
        ),
        (r#"{{ sprig_until 100000000 }}"#, "MiB"),
        (r#"{{ sprig_join (sprig_repeat 1000000 "x") (sprig_until 1000) }}"#, "MiB"),
        (r#"{{ $x := sprig_repeat 1000000 "x" }}{{ range loop 1000 }}{{ $x }}{{ end }}"#, "MiB"),
        (r#"{{ printf "%99999999999d" 1 }}"#, "more than 10000"),
        (r#"{{ printf "%*d" 1000000000 1 }}"#, "more than 10000"),
        (r#"{{ range $i := loop 2000 }}{{ regexMatch (printf "(a{100}){10}%d" $i) "x" }}{{ end }}"#, "steps"),
        (r#"{{ regexMatch "((a{1000}){1000}){1000}" "x" }}"#, "regular expression"),
        (r#"{{ parseJSON (print (sprig_repeat 110 "[") (sprig_repeat 110 "]")) }}"#, "deeper than 100"),
        (r#"{{ parseJSON (sprig_repeat 100000 "[") }}"#, "JSON"),
        (r#"{{ parseYAML (sprig_repeat 1000 "[") }}"#, "YAML"),
        (r#"{{ parseYAML (sprig_repeat 1000 "- ") }}"#, "deeper than 64"),
        (r#"{{ explodeMap (sprig_dict (sprig_repeat 1000 "a/") 1) }}"#, "more than 64 parts"),
        (&deep_if, "deeper than 50"),
        (&deep_parentheses, "deeper than 50"),
        (&long, "longer than 4 MiB"),
    ];
    for (template, part) in cases {
        let before = Instant::now();
        let fault = render(template).expect_err(part);
        let shown: String = template.chars().take(80).collect();
        assert!(fault.to_string().contains(part), "{shown}: {fault}");
        assert!(before.elapsed() < Duration::from_secs(60), "{shown} took {:?}", before.elapsed());
    }
}

#[test]
fn text_without_actions_is_static_and_unchanged() {
    let parsed = GoTemplate::parse("a } b {", &TemplateOptions::default()).expect("it must parse");
    assert!(parsed.is_static());
    assert!(!GoTemplate::parse("{{ 1 }}", &TemplateOptions::default()).expect("it must parse").is_static());
}

/// Pieces of templates: texts of them get further than random characters.
const PIECES: &[&str] = &[
    "{{",
    "}}",
    "{{-",
    " -}}",
    " ",
    "\n",
    "if ",
    "else",
    "end",
    "range ",
    "with ",
    "define ",
    "block ",
    "template ",
    "break",
    "continue",
    "$x",
    "$",
    ":=",
    "=",
    "|",
    ",",
    "(",
    ")",
    ".",
    ".a",
    ".list",
    ".map",
    "\"a\"",
    "`b`",
    "'c'",
    "1",
    "-2",
    "1.5",
    "0x",
    "nil",
    "true",
    "print ",
    "printf ",
    "\"%d%s%[1]*v\"",
    "index ",
    "len ",
    "eq ",
    "and ",
    "slice ",
    "loop ",
    "scratch",
    ".Set",
    "toJSON ",
    "parseJSON ",
    "toYAML ",
    "split ",
    "/*",
    "*/",
    "é",
    "\\",
    "\"",
    "sprig_dict ",
];

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC{0,200}") {
        let _ = render_data(&text, DATA);
        let _ = render_data(&format!("{{{{ {text} }}}}"), DATA);
    }

    #[test]
    fn no_sequence_of_pieces_panics(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..40)) {
        let text = pieces.concat();
        if let Err(fault) = render_data(&text, DATA) {
            prop_assert!(fault.line >= 1 && fault.column >= 1 && fault.span.start <= text.len(), "{:?}", fault);
            prop_assert!(!fault.message.is_empty());
        }
    }

    #[test]
    fn no_arguments_panic(
        name in prop::sample::select(crate::jobspec::gotemplate::function_names()),
        arguments in prop::collection::vec(prop::sample::select(ARGUMENTS), 0..5),
    ) {
        let _ = render_data(&format!("{{{{ {name} {} }}}}", arguments.join(" ")), DATA);
    }

    #[test]
    fn any_format_formats(format in "[%a-zA-Z0-9.*#+ \\[\\]-]{0,30}", n in any::<i64>(), f in any::<f64>()) {
        let data = serde_json::json!({ "format": format, "n": n.to_string(), "f": f }).to_string();
        let _ = render_data("{{ printf .format (parseInt .n) .f .format .list nil }}", &data);
    }

    #[test]
    fn text_without_delimiters_renders_as_itself(text in "[^{}]{0,100}") {
        prop_assert_eq!(render(&text).expect("it must render"), text);
    }

    #[test]
    fn quoted_strings_come_back(text in "\\PC{0,60}") {
        let written = render_data("{{ printf \"%q\" .x }}", &serde_json::json!({ "x": text }).to_string());
        let literal = written.expect("it must render");
        prop_assert_eq!(render(&format!("{{{{ {literal} }}}}")).expect("it must render"), text);
    }

    #[test]
    fn yaml_that_is_written_reads_back(text in "[ -~\n]{0,20}") {
        let data = serde_json::json!({ "x": { "t": text, "l": [text, { "k": text }] } }).to_string();
        let template = "{{ $y := parseYAML (toYAML .x) }}{{ if ne (toJSON $y) (toJSON .x) }}{{ toYAML .x }}{{ end }}";
        prop_assert_eq!(render_data(template, &data).expect("it must render"), "");
    }

    #[test]
    fn json_that_is_written_reads_back(text in "\\PC{0,40}", f in prop::num::f64::NORMAL | prop::num::f64::SUBNORMAL) {
        let data = serde_json::json!({ "x": { "t": text, "f": f } }).to_string();
        let written = render_data("{{ toJSON .x }}", &data).expect("it must render");
        let read: serde_json::Value = serde_json::from_str(&written).expect("it must be JSON");
        prop_assert_eq!(read["t"].as_str(), Some(text.as_str()));
        prop_assert_eq!(read["f"].as_f64(), Some(f));
    }
}

/// Operands of every kind.
const ARGUMENTS: &[&str] = &[
    "0",
    "1",
    "-1",
    "9223372036854775807",
    "-9223372036854775808",
    "1.5",
    "1e300",
    "nil",
    "true",
    "\"\"",
    "\"a,b\"",
    "\"é\"",
    "\"%s\"",
    "\"(\"",
    ".list",
    ".map",
    ".nested",
    ".",
    ".nil",
    "(loop 3)",
    "(ls \"app\")",
    "scratch",
    "(parseUint \"7\")",
];
