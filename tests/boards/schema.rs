//! Boards by Grafana's own types: each is a literal of `Dashboard` of its package `@grafana/schema`, which the compiler
//! of TypeScript reads. A key that Grafana does not know, and a value that it does not take, are errors there.
//!
//! Promise (Code, boards and alerts): Boards have no key and no value that Grafana's own types do not know

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::boards::files::{Board, boards};

/// Named exactly: another one knows other keys.
const PACKAGES: [&str; 4] = ["@grafana/schema@13.2.3", "typescript@5.9.3", "kubernetes-types@1.30.0", "yaml@2.9.1"];

/// A type as JSON has it: the words of an enumeration, not its members. What marks ask is their data source's own, and
/// Grafana hands it on as it stands: these are Prometheus's.
const HEAD: &str = r#"import type { AnnotationQuery, Dashboard } from "@grafana/schema";
type Stored<T> = T extends string ? `${T}` : T extends (infer U)[] ? Stored<U>[]
  : T extends object ? { [K in keyof T]: Stored<T[K]> } : T;
type Asked = { expr?: string; step?: string; tagKeys?: string; textFormat?: string; titleFormat?: string };
type Board = Omit<Stored<Dashboard>, "annotations"> & { annotations?: { list?: (Stored<AnnotationQuery> & Asked)[] } };
export const board: Board = "#;

/// Where the packages are, got by npm once for all runs; `None`: there is no npm, or it cannot get them.
pub fn packages() -> Option<PathBuf> {
    // Tests run beside each other.
    static GOT: OnceLock<Option<PathBuf>> = OnceLock::new();
    GOT.get_or_init(get_packages).clone()
}

fn get_packages() -> Option<PathBuf> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("grafana-schema");
    let marker = directory.join("ready");
    let recipe = PACKAGES.join("\n");
    if std::fs::read_to_string(&marker).is_ok_and(|got| got == recipe) {
        return Some(directory);
    }
    std::fs::create_dir_all(&directory).expect("our own directory");
    std::fs::write(directory.join("package.json"), r#"{"private": true}"#).expect("our own directory");
    let mut npm = Command::new("npm");
    npm.args(["install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-save"]).args(PACKAGES);
    let is_got = npm.current_dir(&directory).stdin(Stdio::null()).output().is_ok_and(|output| output.status.success());
    is_got.then(|| {
        std::fs::write(marker, recipe).expect("our own directory");
        directory
    })
}

/// What the compiler says of files, each its name and what stands in it: nothing, if they are right.
pub fn compiled(directory: &Path, files: &[(&str, String)]) -> String {
    let sources = tempfile::tempdir_in(directory).expect("our own directory");
    let mut tsc = Command::new("node");
    tsc.arg("node_modules/typescript/bin/tsc").args(["--noEmit", "--strict", "--skipLibCheck", "--target", "es2022"]);
    tsc.args(["--module", "esnext", "--moduleResolution", "bundler"]);
    for (stem, source) in files {
        let path = sources.path().join(format!("{stem}.ts"));
        std::fs::write(&path, source).expect("our own directory");
        tsc.arg(path);
    }
    let output = tsc.current_dir(directory).stdin(Stdio::null()).output().expect("who has npm has node");
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn every_board_matches_the_types_of_grafana() {
    let Some(directory) = packages() else { skip_test!("no-npm") };
    let boards: Vec<Board> = boards();
    let source = |board: &Value| format!("{HEAD}{board:#};\n");
    let all: Vec<(&str, String)> = boards.iter().map(|board| (board.stem.as_str(), source(&board.json))).collect();
    let text = compiled(&directory, &all);
    assert!(text.is_empty(), "{text}");
    // It would say so.
    let mut wrong = boards[0].json.clone();
    wrong["timezon"] = json!("browser");
    assert!(compiled(&directory, &[("unknown", source(&wrong))]).contains("'\"timezon\"' does not exist"));
    let mut wrong = boards[0].json.clone();
    wrong["panels"][1]["fieldConfig"]["defaults"]["color"]["mode"] = json!("rainbow");
    assert!(compiled(&directory, &[("value", source(&wrong))]).contains("\"rainbow\"' is not assignable"));
}
