use proptest::prelude::*;

use super::basis::{Budget, Evaluated, EvaluationFault, ExternalInputs};
use super::scope::EvaluationScope;
use super::value::HclValue;
use crate::jobspec::diagnostic::names_what_is_right;

/// A world of one file.
struct OneFile;

impl ExternalInputs for OneFile {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        if path == "motd" { Ok(b"hello".to_vec()) } else { Err(format!("{path}: permission denied")) }
    }
    fn exists(&self, path: &str) -> Result<bool, String> {
        Ok(path == "motd")
    }
    fn list(&self, _: &str, pattern: &str) -> Result<Vec<String>, String> {
        Ok(vec![pattern.replace('*', "a")])
    }
    fn directory(&self) -> Result<String, String> {
        Ok("/srv/jobs".to_owned())
    }
    fn uuid(&self) -> Result<String, String> {
        Ok("0".to_owned())
    }
}

fn evaluate(text: &str) -> Evaluated {
    let source = format!("x = {text}\n");
    let body = hcl_edit::parser::parse_body(&source).map_err(|error| EvaluationFault::new(0..0, error.to_string()))?;
    let budget = Budget::default();
    let mut scope = EvaluationScope::new(&OneFile, &budget);
    let variables =
        r#"{"n": 3, "name": "web", "ports": [80, 443], "tags": {"b": "2", "a": "1"}, "none": null, "on": true}"#;
    scope.set("var", HclValue::from_json(serde_json::from_str(variables).unwrap()));
    scope.set("local", HclValue::from_json(serde_json::json!({"zone": "eu"})));
    let attribute = body.get_attribute("x").unwrap();
    scope.evaluate(&attribute.value)
}

/// As JSON, which shows kinds.
fn json(text: &str) -> String {
    match evaluate(text) {
        Ok(value) => value.to_json().unwrap().to_string(),
        Err(fault) => panic!("{text}: {fault:?}"),
    }
}

#[test]
fn expressions_have_the_values_of_the_specification() {
    for (text, expected) in [
        ("1 + 2 * 3", "7"),
        ("(1 + 2) * 3", "9"),
        ("10 / 4", "2.5"),
        ("10 / 5", "2"),
        ("-7 % 3", "-1"),
        ("9007199254740993 + 1", "9007199254740994"),
        ("\"2\" + 3", "5"),
        ("1 < 2 && !(2 <= 1)", "true"),
        ("var.on || false", "true"),
        ("1 == 1.0", "true"),
        ("var.name == \"web\" ? 1 : 2", "1"),
        ("var.ports[1]", "443"),
        ("var.tags[\"a\"]", "\"1\""),
        ("var.tags.b", "\"2\""),
        ("\"${var.name}-${local.zone}-${var.n}\"", "\"web-eu-3\""),
        ("\"${var.n}\"", "3"),
        ("\"${var.n}x\"", "\"3x\""),
        ("[for p in var.ports : p + 1]", "[81,444]"),
        ("[for i, p in var.ports : \"${i}:${p}\" if p > 100]", "[\"1:443\"]"),
        ("{ for k, v in var.tags : upper(k) => v }", "{\"A\":\"1\",\"B\":\"2\"}"),
        ("{ for p in [\"a1\", \"a2\", \"b1\"] : substr(p, 0, 1) => p... }", "{\"a\":[\"a1\",\"a2\"],\"b\":[\"b1\"]}"),
        ("[{a = 1}, {a = 2}][*].a", "[1,2]"),
        ("[{a = {b = 1}}].*.a.b", "[1]"),
        ("var.none[*]", "[]"),
        ("{ a = 1, \"b c\" = [true, null] }", "{\"a\":1,\"b c\":[true,null]}"),
        ("\"%{ if var.on }yes%{ else }no%{ endif }\"", "\"yes\""),
        ("\"%{ for p in var.ports }<${p}>%{ endfor }\"", "\"<80><443>\""),
        ("\"a ${~ \"b\" ~} c\"", "\"abc\""),
        // Without quotes a reference is the same text.
        ("attr.kernel.name", "\"${attr.kernel.name}\""),
        ("[NOMAD_PORT_http, meta.zone]", "[\"${NOMAD_PORT_http}\",\"${meta.zone}\"]"),
        (
            "\"${NOMAD_TASK_NAME}/${attr.kernel.name}/${meta[\"x\"]}\"",
            "\"${NOMAD_TASK_NAME}/${attr.kernel.name}/${meta[\\\"x\\\"]}\"",
        ),
        ("<<-E\n    a ${var.n}\n      b\n  E", "\"a 3\\n  b\\n\""),
    ] {
        assert_eq!(json(text), expected, "{text}");
    }
}

/// Calls and their values, as JSON.
const CALLS: &[(&str, &str)] = &[
    ("abs(-3)", "3"),
    ("ceil(1.2)", "2"),
    ("floor(-1.2)", "-2"),
    ("max(1, 3, 2)", "3"),
    ("min(var.ports...)", "80"),
    ("parseint(\"ff\", 16)", "255"),
    ("pow(2, 10)", "1024"),
    ("signum(-9)", "-1"),
    ("chomp(\"a\\n\")", "\"a\""),
    (
        "format(\"%s-%03d %q %.2f %5s|%-5s| %x %v%%\", \"a\", 7, \"b\", 1.5, \"c\", \"d\", 255, [1])",
        "\"a-007 \\\"b\\\" 1.50     c|d    | ff [1]%\"",
    ),
    (
        "format(\"%04x|%04X|%06b|%04o|%06.2f|%06d|%04s\", 255, 255, 5, 8, 1.5, -42, \"a\")",
        "\"00ff|00FF|000101|0010|001.50|-00042|   a\"",
    ),
    ("formatlist(\"%s:%d\", [\"a\", \"b\"], 1)", "[\"a:1\",\"b:1\"]"),
    ("indent(2, \"a\\nb\")", "\"a\\n  b\""),
    ("join(\", \", [\"a\", 1, true])", "\"a, 1, true\""),
    ("split(\",\", \"a,,b\")", "[\"a\",\"\",\"b\"]"),
    ("lower(\"AbC\")", "\"abc\""),
    ("title(\"hello world\")", "\"Hello World\""),
    ("replace(\"1+2\", \"+\", \"-\")", "\"1-2\""),
    ("replace(\"a1b2\", \"/[0-9]/\", \"#\")", "\"a#b#\""),
    ("strlen(\"né\")", "2"),
    ("strrev(\"abc\")", "\"cba\""),
    ("substr(\"hello\", -3, -1)", "\"llo\""),
    ("trim(\"xxaxx\", \"x\")", "\"a\""),
    ("trimprefix(\"v1\", \"v\")", "\"1\""),
    ("trimspace(\" a \")", "\"a\""),
    ("chunklist([1, 2, 3], 2)", "[[1,2],[3]]"),
    ("coalesce(null, \"\", \"x\")", "\"x\""),
    ("compact([\"a\", \"\", null])", "[\"a\"]"),
    ("concat([1], [2, 3])", "[1,2,3]"),
    ("contains(var.ports, 80)", "true"),
    ("distinct([1, 2, 1])", "[1,2]"),
    ("element([1, 2], 3)", "2"),
    ("flatten([1, [2, [3]]])", "[1,2,3]"),
    ("index([\"a\", \"b\"], \"b\")", "1"),
    ("keys(var.tags)", "[\"a\",\"b\"]"),
    ("values(var.tags)", "[\"1\",\"2\"]"),
    ("length(var.tags)", "2"),
    ("lookup(var.tags, \"z\", \"none\")", "\"none\""),
    ("merge(var.tags, { a = \"9\" })", "{\"a\":\"9\",\"b\":\"2\"}"),
    ("range(3)", "[0,1,2]"),
    ("range(1, 8, 3)", "[1,4,7]"),
    ("range(2, 0)", "[2,1]"),
    ("reverse([1, 2])", "[2,1]"),
    ("reverse(\"abc\")", "\"cba\""),
    ("true ? 1 : \"a\"", "\"1\""),
    ("false ? var.nothing : 2", "2"),
    ("true ? null : [1]", "null"),
    ("jsonencode(\"<a&b>\")", r#""\"\\u003ca\\u0026b\\u003e\"""#),
    (
        "yamlencode({ foo = [1, { a = \"b\" }], bar = \"x\\ny\", e = [] })",
        r#""\"bar\": |-\n  x\n  y\n\"e\": []\n\"foo\":\n- 1\n- \"a\": \"b\"\n""#,
    ),
    ("yamldecode(\"a: [1, x]\\nb: {c: true}\")", "{\"a\":[1,\"x\"],\"b\":{\"c\":true}}"),
    ("csvdecode(\"a,b\\n1,\\\"x, \\\"\\\"y\\\"\\\"\\\"\\n\")", r#"[{"a":"1","b":"x, \"y\""}]"#),
    (
        "formatdate(\"EEE, DD MMM YYYY hh:mm:ss ZZZ 'o''clock' h AA\", \"2018-01-02T23:12:01Z\")",
        "\"Tue, 02 Jan 2018 23:12:01 UTC o'clock 23 PM\"",
    ),
    ("formatdate(\"H aa Z ZZZZ\", \"2024-02-29T00:05:00+05:30\")", "\"12 am +05:30 +0530\""),
    ("timeadd(\"2024-02-28T23:55:00Z\", \"10m\")", "\"2024-02-29T00:05:00Z\""),
    ("timeadd(\"1969-12-31T23:00:00-01:00\", \"-1h30m\")", "\"1969-12-31T21:30:00-01:00\""),
    ("uuidv5(\"dns\", \"www.example.com\")", "\"2ed6657d-e927-568b-95e1-2665a8aea6a2\""),
    (
        "uuidv5(\"6ba7b810-9dad-11d1-80b4-00c04fd430c8\", \"www.example.com\")",
        "\"2ed6657d-e927-568b-95e1-2665a8aea6a2\"",
    ),
    ("convert(\"5\", number) + 1", "6"),
    ("convert([1, true], list(string))", "[\"1\",\"true\"]"),
    ("abspath(\"/a/./b/../c\")", "\"/a/c\""),
    ("abspath(\"./a\")", "\"/srv/jobs/a\""),
    ("abspath(\"../../../a\")", "\"/a\""),
    ("setintersection([1, 2], [2, 3])", "[2]"),
    ("setproduct([2, 1], [3])", "[[2,3],[1,3]]"),
    ("setproduct(setunion([2, 1]), setunion([3]))", "[[1,3],[2,3]]"),
    ("setunion([1], [1, 2])", "[1,2]"),
    ("setunion([\"b\", \"10\"], [\"9\", \"b\"])", "[\"10\",\"9\",\"b\"]"),
    ("setunion([10, 9], [2.5, -1])", "[-1,2.5,9,10]"),
    ("setunion([1], [\"1\"])", "[\"1\"]"),
    ("{ for k, v in setunion([\"b\"], [\"a\", \"b\"]) : k => v }", "{\"a\":\"a\",\"b\":\"b\"}"),
    ("\"%{ for k, v in setunion([\"b\", \"a\"]) }${k}=${v} %{ endfor }\"", "\"a=a b=b \""),
    ("convert([\"b\", \"a\", \"b\"], set(string))", "[\"a\",\"b\"]"),
    ("convert([1, \"1\"], set(number))", "[1]"),
    ("convert([{ a = 2 }, { a = 1 }, { a = 2 }], set(object({ a = number })))", "[{\"a\":1},{\"a\":2}]"),
    ("convert(setunion([\"b\", \"a\"]), list(string))[0]", "\"a\""),
    ("length(setunion([1, 1]))", "1"),
    ("contains(setunion([\"a\"]), \"a\")", "true"),
    ("jsonencode(setunion([\"b\", \"a\"]))", "\"[\\\"a\\\",\\\"b\\\"]\""),
    ("yamlencode({ s = setunion([\"b\", \"a\"]) })", "\"\\\"s\\\":\\n- \\\"a\\\"\\n- \\\"b\\\"\\n\""),
    ("join(\",\", setunion([\"b\", \"a\"]))", "\"a,b\""),
    ("max(setunion([2, 3])...)", "3"),
    ("flatten([setunion([2, 1]), [3]])", "[1,2,3]"),
    ("setunion([{ a = 1 }])[*].a", "[1]"),
    ("formatlist(\"%s!\", setunion([\"b\", \"a\"]))", "[\"a!\",\"b!\"]"),
    ("true ? [\"b\", \"a\"] : setunion([\"c\"])", "[\"a\",\"b\"]"),
    ("setunion([\"a\"]) == [\"a\"]", "false"),
    ("slice([1, 2, 3], 1, 2)", "[2]"),
    ("sort([\"b\", \"a\"])", "[\"a\",\"b\"]"),
    ("zipmap([\"a\"], [1])", "{\"a\":1}"),
    ("base64encode(\"hi\")", "\"aGk=\""),
    ("base64decode(\"aGk=\")", "\"hi\""),
    ("jsondecode(\"{\\\"a\\\": [1.5, null]}\")", "{\"a\":[1.5,null]}"),
    ("jsonencode({ a = [1, true] })", "\"{\\\"a\\\":[1,true]}\""),
    ("md5(\"abc\")", "\"900150983cd24fb0d6963f7d28e17f72\""),
    ("sha256(\"\")", "\"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\""),
    ("urlencode(\"a b/é\")", "\"a+b%2F%C3%A9\""),
    ("basename(\"/a/b.c\")", "\"b.c\""),
    ("dirname(\"/a/b.c\")", "\"/a\""),
    ("file(\"motd\")", "\"hello\""),
    ("fileexists(\"none\")", "false"),
    ("cidrhost(\"10.0.0.0/8\", 5)", "\"10.0.0.5\""),
    ("cidrhost(\"10.12.112.0/20\", -1)", "\"10.12.127.255\""),
    ("cidrnetmask(\"172.16.0.0/12\")", "\"255.240.0.0\""),
    ("cidrsubnet(\"172.16.0.0/12\", 4, 2)", "\"172.18.0.0/16\""),
    ("cidrsubnet(\"::1/0\", 4, 1)", "\"1000::/4\""),
    ("cidrsubnets(\"10.1.0.0/16\", 4, 4, 8)", "[\"10.1.0.0/20\",\"10.1.16.0/20\",\"10.1.32.0/24\"]"),
    ("cidrhost(\"fd00::/64\", 1)", "\"fd00::1\""),
    ("can(var.nothing)", "false"),
    ("try(var.nothing, 7)", "7"),
    ("coalescelist([], [1], [2])", "[1]"),
    ("filebase64(\"motd\")", "\"aGVsbG8=\""),
    ("fileset(\"/etc\", \"*.x\")", "[\"a.x\"]"),
    ("log(16, 2)", "4"),
    ("pathexpand(\"/a/b\")", "\"/a/b\""),
    ("regex_replace(\"a1b22\", \"[0-9]+\", \"#\")", "\"a#b#\""),
    ("sha1(\"abc\")", "\"a9993e364706816aba3e25717850c26c9cd0d89d\""),
    (
        "sha512(\"abc\")",
        "\"ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f\"",
    ),
    ("trimsuffix(\"a.log\", \".log\")", "\"a\""),
    ("upper(\"aB\")", "\"AB\""),
    ("uuidv4()", "\"0\""),
];

#[test]
fn functions_have_the_values_of_their_documentation() {
    for (text, expected) in CALLS {
        assert_eq!(json(text), *expected, "{text}");
    }
}

#[test]
fn each_function_has_a_row_with_its_value() {
    let is_called = |name: &str| {
        let call = format!("{name}(");
        let begins = |text: &str| {
            let before = text.find(&call).map(|at| text[..at].chars().next_back());
            before.is_some_and(|before| before.is_none_or(|c| !c.is_alphanumeric() && c != '_'))
        };
        CALLS.iter().any(|(text, _)| begins(text))
    };
    let without: Vec<&str> = super::functions::names().into_iter().filter(|name| !is_called(name)).collect();
    assert!(without.is_empty(), "{without:?}");
}

#[test]
fn a_dynamic_block_over_a_set_has_its_values_as_keys_in_order() {
    let of = |head: &str, set: &str| {
        let text = format!(
            "{head}\njob \"j\" {{\n dynamic \"group\" {{\n for_each = {set}\n labels = [\"${{group.key}}-${{group.value}}\"]\n content {{\n \
             task \"t\" {{\n driver = \"mock\"\n config {{\n }}\n }}\n }}\n }}\n}}\n"
        );
        let parsed = crate::jobspec::parse("x.hcl", &text).unwrap();
        parsed.job.groups.iter().map(|group| group.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(of("", "setunion([\"b\", \"a\"], [\"b\"])"), ["a-a", "b-b"]);
    assert_eq!(of("", "[\"b\", \"a\"]"), ["0-b", "1-a"], "a list has its indices");
    let variable = "variable \"x\" {\n type = set(string)\n default = [\"b\", \"a\", \"b\"]\n}";
    assert_eq!(of(variable, "var.x"), ["a-a", "b-b"]);
}

fn parsed(head: &str, meta: &str) -> Result<String, String> {
    let text = format!(
        "{head}\njob \"j\" {{\n meta {{\n A = {meta}\n }}\n group \"g\" {{\n task \"t\" {{\n driver = \"mock\"\n config {{\n }}\n }}\n }}\n}}\n"
    );
    crate::jobspec::parse("x.hcl", &text)
        .map(|parsed| parsed.job.meta["A"].clone())
        .map_err(|errors| errors.to_string())
}

#[test]
fn locals_refer_to_each_other_in_whatever_order_they_are_written() {
    let chain: String = (1..=4_000).rev().map(|n| format!(" a{n} = local.a{}\n", n - 1)).collect();
    assert_eq!(parsed(&format!("locals {{\n{chain} a0 = 7\n}}"), "local.a4000"), Ok("7".to_owned()));
    let computed = "locals {\n c = \"${local.b}!\"\n b = local[local.name]\n name = join(\"\", [\"a\"])\n a = \"x\"\n}";
    assert_eq!(parsed(computed, "local.c"), Ok("x!".to_owned()));
    let circle = parsed("locals {\n a = local.b\n b = local[\"a\"]\n}", "1").unwrap_err();
    assert!(circle.contains("x.hcl:2:2: error: the local `a` depends on itself"), "{circle}");
    assert_eq!(parsed("locals {\n a = 1\n}\nlocals {\n a = 2\n}", "local.a"), Ok("2".to_owned()));
}

#[test]
fn a_reference_and_its_parts_cost_what_they_give() {
    // As often as it is, a large object is no copy of itself.
    let large = format!("locals {{\n a = {{ b = 1, c = \"{}\" }}\n}}", "x".repeat(100_000));
    let sum = (0..400).map(|_| "local.a.b").collect::<Vec<_>>().join(", ");
    assert_eq!(parsed(&large, &format!("length([{sum}])")), Ok("400".to_owned()));
    assert_eq!(
        parsed("locals {\n a = [{ b = [1, 2] }, { b = [3] }]\n}", "jsonencode(local.a[*].b[0])"),
        Ok("[1,3]".to_owned())
    );
    let long = parsed("", &format!("[1]{}", "[0]".repeat(300))).unwrap_err();
    assert!(long.contains("a reference has at most 200 parts"), "{long}");
}

#[test]
fn expanded_blocks_are_within_the_budget_and_its_end_is_one_problem() {
    let task = |count: usize| {
        format!(
            "dynamic \"task\" {{\n for_each = range({count})\n labels = [\"t${{task.value}}\"]\n content {{\n driver = \"mock\"\n config {{\n }}\n }}\n }}"
        )
    };
    let of = |groups: usize, tasks: usize| {
        let group = format!(
            "dynamic \"group\" {{\n for_each = range({groups})\n labels = [\"g${{group.value}}\"]\n content {{\n {}\n }}\n }}",
            task(tasks)
        );
        crate::jobspec::parse("x.hcl", &format!("job \"j\" {{\n{group}\n}}\n"))
    };
    let tasks: usize = of(10, 100).unwrap().job.groups.iter().map(|group| group.tasks.len()).sum();
    assert_eq!(tasks, 1_000);
    let errors = of(1_000, 1_000).unwrap_err();
    let (first, count) = (errors.0[0].message.as_str(), errors.0.len());
    assert_eq!((first, count), ("values and expanded blocks take more than 16 MiB", 1), "{errors}");
}

/// A task for each number below `count`, each with a template of a text of `bytes` bytes.
fn tasks_with_text(count: usize, bytes: usize) -> String {
    let text = format!("{}\n", "x".repeat(99)).repeat(bytes / 100);
    format!(
        "job \"j\" {{\n group \"g\" {{\n dynamic \"task\" {{\n for_each = range({count})\n labels = [\"t${{task.value}}\"]\n \
         content {{\n driver = \"mock\"\n template {{\n destination = \"local/text\"\n data = <<EOF\n{text}EOF\n }}\n \
         config {{\n }}\n }}\n }}\n }}\n}}\n"
    )
}

#[test]
fn text_of_a_dynamic_block_counts_once_for_each_element() {
    let parse = |text: &str| crate::jobspec::parse("x.hcl", text);
    let ordinary = parse(&tasks_with_text(100, 4 << 10)).unwrap();
    assert_eq!(ordinary.job.groups[0].tasks.len(), 100);
    // Written once, the same text is no expansion.
    assert!(parse(&tasks_with_text(1, 220 << 10)).is_ok());
    let errors = parse(&tasks_with_text(1_000, 220 << 10)).unwrap_err();
    assert_eq!(errors.0.len(), 1, "{errors}");
    let error = errors.to_string();
    let expected = "x.hcl:3:2: error: values and expanded blocks take more than 16 MiB\n    3 |  dynamic \"task\" {";
    assert!(error.starts_with(expected), "{error}");
    assert!(error.contains("make it smaller: fewer elements, or several job files"), "{error}");
}

#[test]
fn faults_name_their_place_and_what_would_be_right() {
    for (text, at, message) in [
        ("1 + var.none", 4, "this takes numbers, not a number and null"),
        ("var.nothing", 4, "variable `nothing` is not declared"),
        ("local[\"zome\"]", 4, "local `zome` is not declared"),
        ("var.tags.z", 4, "there is no `z`"),
        ("upper(var.ports)", 4, "upper(): argument 1 is a string, not a list"),
        ("uper(\"a\")", 4, "there is no function uper()"),
        ("file(\"/etc/shadow\")", 4, "file(): /etc/shadow: permission denied"),
        ("1 / 0", 4, "this divides by zero"),
        ("setunion([1])[0]", 4, "the elements of a set have no index"),
        ("fileset(\"/etc\", \"*\").0", 4, "the elements of a set have no index"),
        ("element(setunion([1]), 0)", 4, "element(): argument 1 is a list, not a set: convert(SET, list(string))"),
        ("concat(setunion([1]), [2])", 4, "concat(): argument 1 is a list, not a set: convert(SET, list(string))"),
        ("toset([1])", 4, "there is no function toset()"),
        ("var.ports[2]", 4, "the list has 2 elements, and not this one"),
        ("\"a${var.tags}\"", 6, "an object cannot stand in a string"),
        ("true ? [1] : \"b\"", 4, "the sides of a condition are a list and a string"),
        ("convert(\"x\", number)", 4, "convert(): it is a number, not a string"),
        ("csvdecode(\"a,b\\n1\\n\")", 4, "csvdecode(): a line has 1 fields, the header 2"),
        (
            "timeadd(\"2024-02-30T00:00:00Z\", \"1h\")",
            4,
            "timeadd(): \"2024-02-30T00:00:00Z\" is no time of RFC 3339, as in 2026-01-31T12:00:00Z",
        ),
        ("timestamp()", 4, "there is no function timestamp()"),
        ("range(5000)", 4, "range(): it would have more than 1024 elements"),
        ("format(\"%d\", \"x\")", 4, "format(): %d does not take a string"),
    ] {
        let fault = evaluate(text).expect_err(text);
        assert!(names_what_is_right(&fault.message, fault.suggestion.as_deref()), "{text}: {fault:?}");
        assert_eq!((fault.span.start, &*fault.message), (at, message), "{text}");
    }
    for (text, advice) in [
        ("local[\"zome\"]", "did you mean local.zone?"),
        ("var.zz", "declare it: variable \"zz\" { default = ... }"),
        ("local.zz", "declare it: locals { zz = ... }"),
    ] {
        assert_eq!(evaluate(text).unwrap_err().suggestion.as_deref(), Some(advice));
    }
    let fault = evaluate("uper(\"a\")").unwrap_err();
    assert_eq!(fault.suggestion.as_deref(), Some("did you mean upper()?"));
}

#[test]
fn evaluation_ends_within_its_steps_and_bytes() {
    let many = "[for a in range(1000) : [for b in range(1000) : [for c in range(1000) : c]]]";
    assert!(evaluate(many).unwrap_err().message.contains("steps"));
    let large = "[for a in range(1000) : format(\"%10000s\", [for b in range(100) : format(\"%10000s\", \"x\")][0])]";
    assert!(evaluate(large).unwrap_err().message.contains("MiB"));
    let deep = format!("{}1{}", "(".repeat(60), ")".repeat(60));
    assert_eq!(json(&deep), "1");
}

proptest! {
    #[test]
    fn no_expression_panics(text in "[a-z0-9.\\[\\]{}()\"$%:=>?*+ -]{0,40}|(var|local|upper|format|for|in|if| |\\(|\\)|\\[|\\]|\\{|\\}|:|,|\"|\\$\\{|1|a){0,25}") {
        let _ = evaluate(&text);
    }
    #[test]
    fn no_date_or_table_panics(time in "[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9](Z|[+-][0-9]{2}:[0-9]{2}|\\.[0-9]{0,12}Z)", text in "[a-zA-Z0-9.'µ,\"\n-]{0,12}") {
        for call in [format!("formatdate({text:?}, {time:?})"), format!("timeadd({time:?}, {text:?})"), format!("csvdecode({text:?})"), format!("yamldecode(yamlencode({text:?}))")] {
            let _ = evaluate(&call);
        }
    }
    #[test]
    fn no_format_panics(template in "[%0-9.a-z+# -]{0,12}", n in any::<i64>()) {
        let _ = evaluate(&format!("format({template:?}, {n})"));
    }
}
