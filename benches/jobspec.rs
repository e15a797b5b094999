//! What a job file of 50 variables and 200 expressions costs from its text to a checked job.
//!
//! `cargo bench --bench jobspec`.

#[path = "../tests/common/mod.rs"]
mod common;
mod shared;

use std::fmt::Write;
use std::time::Instant;

use allostat::jobspec::parse;
use shared::{median, report};

const VARIABLES: usize = 50;
const EXPRESSIONS: usize = 200;
const ROUNDS: usize = 100;

/// Functions, conditionals, `for`, templates and collections in turn, each of variables.
fn text() -> String {
    let mut out = String::new();
    for n in 0..VARIABLES {
        let _ = writeln!(out, "variable \"v{n}\" {{\n  type = list(string)\n  default = [\"a{n}\", \"b\", \"c\"]\n}}");
    }
    out.push_str("job \"bench\" {\n  group \"g\" {\n    task \"t\" {\n      driver = \"raw_exec\"\n");
    out.push_str("      config {\n        command = \"/bin/true\"\n      }\n      env {\n");
    for n in 0..EXPRESSIONS {
        let v = format!("var.v{}", n % VARIABLES);
        let value = match n % 5 {
            0 => format!("join(\"-\", [for item in {v} : upper(item) if item != \"b\"])"),
            1 => format!("length({v}) > 2 ? \"${{{v}[0]}}/${{{v}[1]}}\" : \"none\""),
            2 => format!("jsonencode({{ all = {v}, first = {v}[0], sum = {n} * 3 + 1 }})"),
            3 => format!("\"%{{ for item in {v} }}${{item}},%{{ endfor }}\""),
            _ => format!("sha256(join(\"\", concat({v}, [\"{n}\"])))"),
        };
        let _ = writeln!(out, "        E{n} = {value}");
    }
    out.push_str("      }\n    }\n  }\n}\n");
    out
}

fn main() {
    let text = text();
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let began = Instant::now();
            let parsed = parse("bench.nomad.hcl", &text).expect("it is valid");
            assert_eq!(parsed.job.groups[0].tasks[0].env.len(), EXPRESSIONS);
            began.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    report("jobspec/evaluated-p50", median(&mut times), "ms: 50 variables, 200 expressions", None);
}
