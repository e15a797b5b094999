//! Job files that ask for much: `allostat check` answers within 64 MiB of memory and a second of CPU time, or two
//! without optimization.

use std::process::{Command, Output};

use proptest::prelude::*;

use crate::common::{allostat, how_many, patience, test_dir};

/// What is promised, in KiB: heap and anonymous memory of the process (`RLIMIT_DATA`).
const MOST_KIB: u64 = 64 << 10;
/// CPU time in seconds (`RLIMIT_CPU`). The kernel counts whole ones. The limit of the binary that users run is
/// one: `cargo test --release --test plain evaluation::` tests it. The gate tests an unoptimized binary, which takes
/// more time for the same work and may take two.
const MOST_SECONDS: u32 = if cfg!(debug_assertions) { 2 } else { 1 };

fn checked(file: &str, most_kib: u64) -> Output {
    const SCRIPT: &str = "ulimit -c 0 && ulimit -d \"$1\" && ulimit -t \"$2\" && exec \"$3\" check \"$4\"";
    let seconds = MOST_SECONDS * patience();
    let mut command = Command::new("/bin/sh");
    command.args(["-c", SCRIPT, "sh"]).args([most_kib.to_string(), seconds.to_string()]).arg(allostat()).arg(file);
    command.output().expect("a shell must start")
}

fn job(head: &str, value: &str) -> String {
    let config = "driver = \"raw_exec\"\n config {\n command = \"/bin/true\"\n }";
    format!(
        "{head}\njob \"j\" {{\n group \"g\" {{\n task \"t\" {{\n {config}\n env {{\n A = {value}\n }}\n }}\n }}\n}}\n"
    )
}

/// `local.a30`, each local made of two of the one before it.
fn doubled(first: &str, next: impl Fn(&str) -> String) -> String {
    let lines: String = (1..=30).map(|n| format!(" a{n} = {}\n", next(&format!("local.a{}", n - 1)))).collect();
    format!("locals {{\n a0 = {first}\n{lines}}}")
}

/// A task for each number below `count`; `config`: what else is in its `config`.
fn tasks(count: usize, config: &str) -> String {
    format!(
        "dynamic \"task\" {{\n for_each = range({count})\n labels = [\"t${{task.value}}\"]\n content {{\n driver = \"raw_exec\"\n config {{\n \
         command = \"/bin/true\"\n {config}\n }}\n }}\n }}"
    )
}

fn groups(count: usize, tasks: &str) -> String {
    format!(
        "job \"j\" {{\n dynamic \"group\" {{\n for_each = range({count})\n labels = [\"g${{group.value}}\"]\n content {{\n {tasks}\n }}\n \
         }}\n}}\n"
    )
}

/// Each with its name, and whether it is a right job file.
fn hostile() -> Vec<(&'static str, bool, String)> {
    let aliases: String = (b'b'..b'k')
        .map(|c| {
            let (own, before) = (char::from(c), char::from(c - 1));
            format!("{own}: &{own} [{}]\\n", vec![format!("*{before}"); 10].join(","))
        })
        .collect();
    let many = |count: usize, separator: &str, one: fn(usize) -> String| {
        (0..count).map(one).collect::<Vec<_>>().join(separator)
    };
    let wide = |text: &str| format!("format(\"%9000s\", \"{text}\")");
    vec![
        ("nested dynamic blocks", false, groups(1_000, &tasks(1_000, ""))),
        (
            "dynamic blocks three deep",
            false,
            groups(1_000, &tasks(1_000, "dynamic \"mount\" {\n for_each = range(1000)\n content {\n }\n }")),
        ),
        ("many dynamic tasks", true, groups(10, &tasks(100, ""))),
        ("dynamic tasks with long lists", false, groups(1, &tasks(1_000, "args = [for n in range(150) : \"x\"]"))),
        (
            "dynamic tasks with many values",
            false,
            groups(1, &tasks(1_000, &format!("args = [{}]", many(1_000, ",", |_| "1".to_owned())))),
        ),
        (
            "dynamic tasks with a long text",
            false,
            groups(1, &tasks(1_000, &format!("args = [<<EOF\n{}\nEOF\n]", "x".repeat(200 << 10)))),
        ),
        ("a list of lists", false, job("", "[for a in range(1000) : [for b in range(150) : \"x\"]]")),
        (
            "locals in reverse order",
            true,
            job(
                &format!(
                    "locals {{\n{}\n a0 = 1\n}}",
                    many(4_000, "\n", |n| format!(" a{} = local.a{}", 4_000 - n, 3_999 - n))
                ),
                "local.a4000",
            ),
        ),
        (
            "locals in a circle",
            false,
            job(
                &format!("locals {{\n{}\n}}", many(4_000, "\n", |n| format!(" a{n} = local.a{}", (n + 1) % 4_000))),
                "1",
            ),
        ),
        (
            "doubled text",
            false,
            job(&doubled("\"xxxxxxxxxxxxxxxx\"", |a| format!("\"${{{a}}}${{{a}}}\"")), "length(local.a30)"),
        ),
        ("doubled list", false, job(&doubled("[1]", |a| format!("concat({a}, {a})")), "length(local.a30)")),
        ("nested lists", false, job(&doubled("[1]", |a| format!("[{a}, {a}]")), "jsonencode(local.a30)")),
        ("nested lists compared", false, job(&doubled("[1]", |a| format!("[{a}, {a}]")), "local.a24 == local.a24")),
        (
            "aliases of YAML",
            false,
            job("", &format!("length(yamldecode(\"a: &a [x,x,x,x,x,x,x,x,x,x]\\n{aliases}\"))")),
        ),
        ("a product of sets", false, job("", "length(setproduct(range(1000), range(1000), range(1000)))")),
        ("a wide indent", false, job("", "indent(1000000000, \"a\\nb\\n\")")),
        ("a wide number", false, job("", "format(\"%1000000000d\", 1)")),
        (
            "replaced replacements",
            false,
            job(
                "",
                &format!(
                    "length([replace(replace(replace({}, \" \", {}), \" \", {}), \" \", \"aaa\")])",
                    wide("x"),
                    wide("y"),
                    wide("z")
                ),
            ),
        ),
        ("a large power", false, job("", "pow(9, 999999999)")),
        (
            "a regular expression of repetitions",
            false,
            job("", "regex_replace(\"a\", \"(((a{0,1000}){0,1000}){0,1000})\", \"b\")"),
        ),
        (
            "a regular expression of stars",
            true,
            job("", &format!("strlen(regex_replace({}, \"(((a*)*)*)*$\", \"b\"))", wide("a"))),
        ),
        ("parentheses", false, job("", &format!("{}1{}", "(".repeat(20_000), ")".repeat(20_000)))),
        ("brackets", false, job("", &format!("{}{}", "[".repeat(20_000), "]".repeat(20_000)))),
        ("signs", false, job("", &format!("{}1", "-".repeat(20_000)))),
        ("negations", false, job("", &format!("{}true", "!".repeat(20_000)))),
        ("nested templates", false, job("", &format!("\"{}x{}\"", "${\"".repeat(3_000), "\"}".repeat(3_000)))),
        ("a nested heredoc", false, job("", &format!("<<E\n{}1{}\nE", "${".repeat(2_000), "}".repeat(2_000)))),
        ("nested conditions", false, job("", &format!("{}1{}", "true ? ".repeat(5_000), " : 2".repeat(5_000)))),
        ("a long sum", false, job("", &format!("1{}", " + 1".repeat(20_000)))),
        ("splats", false, job("", &format!("[[]]{}", "[*]".repeat(5_000)))),
        ("indices", false, job("", &format!("[1]{}", "[0]".repeat(20_000)))),
        ("attributes", false, job("", &format!("var{}", ".a".repeat(20_000)))),
        ("blocks in blocks", false, format!("{}{}", "a {\n".repeat(20_000), "}\n".repeat(20_000))),
        (
            "an object of many keys",
            true,
            job("", &format!("{{{}}}[\"k5\"]", many(4_000, ",", |n| format!("k{n}={n}")))),
        ),
        ("a list of many values", false, job("", &format!("[{}]", many(40_000, ",", |n| n.to_string())))),
    ]
}

/// Promise (Input validation): `check` of a hostile job file takes at most 64 MiB and ends
#[test]
fn check_of_a_hostile_job_file_is_bounded_in_memory_and_time() {
    let dir = test_dir();
    let path = dir.path().join("hostile.hcl");
    let file = path.to_str().expect("UTF-8");
    let mut beyond = Vec::new();
    for (name, is_right, text) in hostile() {
        assert!(text.len() < 256 << 10, "{name} is refused for its size alone");
        std::fs::write(&path, &text).expect("a file of ours can be written");
        let output = checked(file, MOST_KIB);
        let printed = String::from_utf8_lossy(&output.stderr);
        if output.status.code() != Some(if is_right { 0 } else { 65 }) {
            let message: String = printed.chars().take(300).collect();
            beyond.push(format!("{name}: {}: {message}", output.status));
        }
        assert!(printed.len() < 64 << 10, "{name} is answered with {} bytes", printed.len());
    }
    assert!(beyond.is_empty(), "{}", beyond.join("\n"));
}

/// The limits of the test above are those of the kernel.
#[test]
fn check_within_too_little_memory_is_ended() {
    let dir = test_dir();
    let path = dir.path().join("small.hcl");
    std::fs::write(&path, job("", "1")).expect("a file of ours can be written");
    let file = path.to_str().expect("UTF-8");
    assert_eq!(checked(file, MOST_KIB).status.code(), Some(0));
    assert_ne!(checked(file, 64).status.code(), Some(0));
}

/// Functions whose values can be much larger than their arguments, and others of each kind.
const FUNCTIONS: &[&str] = &[
    "range",
    "setproduct",
    "concat",
    "flatten",
    "merge",
    "zipmap",
    "chunklist",
    "slice",
    "sort",
    "distinct",
    "reverse",
    "keys",
    "format",
    "formatlist",
    "indent",
    "join",
    "split",
    "replace",
    "regex_replace",
    "substr",
    "title",
    "trim",
    "strrev",
    "jsonencode",
    "jsondecode",
    "yamldecode",
    "yamlencode",
    "csvdecode",
    "base64encode",
    "urlencode",
    "sha256",
    "md5",
    "pow",
    "parseint",
    "max",
    "min",
    "abs",
    "cidrsubnets",
    "cidrhost",
    "timeadd",
    "formatdate",
    "convert",
    "lookup",
    "element",
    "coalesce",
    "contains",
    "length",
    "file",
    "fileset",
    "no_such_function",
];

const OPERATORS: &[&str] = &["+", "-", "*", "/", "%", "==", "!=", "<", ">=", "&&", "||"];

fn expression() -> BoxedStrategy<String> {
    // Few break the syntax: of such a file nothing is evaluated.
    let leaf = prop_oneof![
        20 => "-?[0-9]{1,6}(\\.[0-9]{1,3})?",
        10 => "[1-9][0-9]{6,40}(e[0-9]{1,3})?",
        20 => "\"[a-z0-9 ,:/+*.-]{0,16}\"",
        10 => "(var|local|attr|meta|env)(\\.[a-z]{1,3}){1,3}",
        20 => prop::sample::select(&["local.a1", "local.a2", "local.a3", "var.v", "d", "task.value"][..]).prop_map(str::to_owned),
        10 => "(true|false|null|NOMAD_[A-Z_]{1,6}|[a-z_]{1,6})",
        1 => "\"[a-z %$(){}\\[\\]\\\\]{0,16}\"",
        1 => "<<-?E\n[a-z0-9 $%{}\\n]{0,30}\nE\n",
        1 => ".{0,6}",
    ];
    leaf.prop_recursive(6, 60, 6, |inner| {
        let two = (inner.clone(), inner.clone());
        let three = (inner.clone(), inner.clone(), inner.clone());
        let many = prop::collection::vec(inner.clone(), 0..6);
        let call = (prop::sample::select(FUNCTIONS), many.clone(), any::<bool>());
        prop_oneof![
            (two.clone(), prop::sample::select(OPERATORS)).prop_map(|((a, b), by)| format!("({a} {by} {b})")),
            three.clone().prop_map(|(a, b, c)| format!("({a} ? {b} : {c})")),
            many.clone().prop_map(|all| format!("[{}]", all.join(", "))),
            many.clone().prop_map(|all| {
                let pairs = all.iter().enumerate().map(|(at, value)| format!("k{} = {value}", at / 2));
                format!("{{ {} }}", pairs.collect::<Vec<_>>().join(", "))
            }),
            call.prop_map(|(name, all, expands)| {
                format!("{name}({}{})", all.join(", "), if expands && !all.is_empty() { "..." } else { "" })
            }),
            three.clone().prop_map(|(a, b, c)| format!("[for d in {a} : {b} if {c}]")),
            three.prop_map(|(a, b, c)| format!("{{ for k, d in {a} : {b} => {c}... }}")),
            two.clone().prop_map(|(a, b)| format!("\"x${{{a}}}%{{ if {b} }}y%{{ endif }}${{~ {a} ~}}\"")),
            two.clone().prop_map(|(a, b)| format!("\"%{{ for d in {a} }}${{{b}}}%{{ endfor }}\"")),
            two.prop_map(|(a, b)| format!("{a}[{b}]")),
            inner.clone().prop_map(|a| format!("{a}[*].a")),
            inner.clone().prop_map(|a| format!("-{a}")),
            inner.prop_map(|a| format!("!{a}")),
        ]
    })
    .boxed()
}

/// Job files: of every construct, with values that are made of each other; and any text.
fn texts() -> impl Strategy<Value = String> {
    let head = |a: &str, b: &str, c: &str| {
        format!(
            "variable \"v\" {{\n default = {a}\n}}\nlocals {{\n a1 = {b}\n a2 = [local.a1, local.a1]\n a3 = {c}\n}}"
        )
    };
    let four = (expression(), expression(), expression(), expression());
    prop_oneof![
        8 => four.clone().prop_map(move |(a, b, c, d)| job(&head(&a, &b, &c), &d)),
        4 => (four, 0..200_usize).prop_map(move |((a, b, c, d), count)| {
            format!("{}\n{}", head(&a, &b, &c), groups(count, &tasks(count, &format!("args = [{d}]"))))
        }),
        1 => "(.|\n){0,400}",
        1 => "((job|group|task|dynamic|content|variable|locals|for_each|labels|\"x\"|=|\\{|\\}|\\[|\\]|\\$\\{|1|\n) ?){0,120}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(u32::try_from(how_many(60, 600)).expect("a small number")))]
    /// The limits are those of the kernel: a process that passes them is killed, and one that panics has another code.
    ///
    /// Promise (Input validation): Whatever a job file has, its `check` ends without a panic within 64 MiB and 2 s of
    /// CPU time
    #[test]
    fn no_job_file_panics_or_exceeds_memory_or_time_of_a_check(text in texts()) {
        let dir = test_dir();
        let path = dir.path().join("any.hcl");
        std::fs::write(&path, &text).expect("our own directory");
        let output = checked(path.to_str().expect("UTF-8"), MOST_KIB);
        let printed = String::from_utf8_lossy(&output.stderr);
        prop_assert!(matches!(output.status.code(), Some(0 | 65)), "{}: {printed}", output.status);
        prop_assert!(printed.len() < 256 << 10, "answered with {} bytes", printed.len());
    }
}
