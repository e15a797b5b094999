//! A file as a tree, from either language.

use super::diagnostic::{Diagnostics, MAX_FILE_BYTES, Problems, SourceText};
use super::hcl::Inputs;
use super::tree::StanzaBody;
use super::{hcl, json};

/// Reads HCL, or JSON: if the name ends with `.json` or the text starts with `{`.
///
/// Errors: what breaks the syntax, and what the language has but these files do not (functions, variables, loops).
pub fn read(source: &SourceText) -> Result<StanzaBody, Diagnostics> {
    let problems = Problems::new(source);
    let body = read_into(&problems, None);
    let (errors, _) = problems.into_parts();
    if errors.0.is_empty() { Ok(body) } else { Err(errors) }
}

/// As [`read`], but what can be read is returned, so that the rest of the file is checked too. `inputs`: of a job file,
/// whose expressions are evaluated.
pub fn read_into(problems: &Problems<'_>, inputs: Option<Inputs<'_>>) -> StanzaBody {
    let source = problems.source();
    let text = source.text();
    let nothing = StanzaBody { entries: Vec::new(), span: 0..text.len() };
    if text.len() > MAX_FILE_BYTES {
        problems.error(
            &(0..0),
            "",
            format!("the file is larger than {} KiB", MAX_FILE_BYTES >> 10),
            Some("split it into several files".to_owned()),
        );
        return nothing;
    }
    // In HCL it is skipped.
    if text.starts_with('\u{feff}') && is_json(source) {
        let advice = Some("save it as UTF-8 without a byte order mark".to_owned());
        problems.error(&(0..3), "", "the file starts with a byte order mark", advice);
        return nothing;
    }
    if is_json(source) { json::read(problems) } else { hcl::read(problems, inputs) }.unwrap_or(nothing)
}

/// By the file's name or its first character: no HCL begins with a brace.
pub fn is_json(source: &SourceText) -> bool {
    source.file().to_ascii_lowercase().ends_with(".json") || source.text().trim_start().starts_with('{')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobspec::tree::{Literal, ValueNode};
    use proptest::prelude::*;

    fn problems_of(file: &str, text: &str) -> Vec<(usize, usize, String)> {
        match read(&SourceText::new(file, text)) {
            Ok(_) => Vec::new(),
            Err(errors) => errors.0.into_iter().map(|d| (d.line, d.column, d.message)).collect(),
        }
    }

    /// The tree without its places and without the difference between attribute and block.
    fn shape(node: &ValueNode) -> String {
        match &node.value {
            Literal::Object(body) => {
                let inner = body.entries.iter().map(|e| {
                    let labels: String = e.labels.iter().map(|l| format!(" {:?}", l.text)).collect();
                    format!("{}{labels}={}", e.key, shape(&e.value))
                });
                format!("{{{}}}", inner.collect::<Vec<_>>().join(","))
            }
            Literal::List(list) => format!("[{}]", list.iter().map(shape).collect::<Vec<_>>().join(",")),
            other => format!("{other:?}"),
        }
    }
    fn tree_of(file: &str, text: &str) -> String {
        let body = read(&SourceText::new(file, text)).expect("must be readable");
        shape(&ValueNode { span: 0..0, value: Literal::Object(body) })
    }

    #[test]
    fn both_languages_give_the_same_tree() {
        let hcl = "a = 1\nb = [true, null, -1.5]\nc = { \"x y\" = \"$${k} ${ meta.m } %%{\" }\nd = <<-E\n  t\n  E\n";
        let json = r#"{"a": 1, "b": [true, null, -1.5], "c": {"x y": "$${k} ${meta.m} %%{"}, "d": "t\n"}"#;
        assert_eq!(tree_of("x.hcl", hcl), tree_of("x.json", json));
        assert_eq!(tree_of("x", json), tree_of("x.json", json), "the first character decides");
        assert_eq!(
            tree_of("x.hcl", "t \"n\" {\n  a = 18446744073709551616\n}\n"),
            "{t \"n\"={a=Int(18446744073709551616)}}"
        );
    }

    #[test]
    fn computed_expressions_in_settings_are_refused_by_name() {
        let refused = |value: &str, message: &str| {
            assert_eq!(problems_of("x.hcl", &format!("a = {value}\n")), [(1, 5, message.to_owned())], "{value}");
        };
        refused("batch", "`batch` stands without quotes");
        refused("file(\"x\")", "HCL functions are not supported: `file()`");
        refused("var.x", "HCL variables are not supported: `var.x`");
        refused("1 + 2", "HCL expressions are not supported: `1 + 2`");
        refused("true ? 1 : 2", "HCL conditions (`a ? b : c`) are not supported");
        refused("[for x in [1]: x]", "HCL `for` expressions are not supported");
        refused(&"9".repeat(40), &format!("the number `{}` is too large", "9".repeat(40)));
        let inside = |value: &str, message: &str| {
            assert_eq!(problems_of("x.hcl", &format!("a = {value}\n")), [(1, 8, message.to_owned())], "{value}");
        };
        inside("\"b ${upper(\"x\")}\"", "HCL functions are not supported: `upper()`");
        inside("\"b ${local.x}\"", "HCL variables are not supported: `local.x`");
        inside("\"b %{ if true }x%{ endif }\"", "template directives (`%{`) are not supported");
    }

    #[test]
    fn broken_syntax_is_one_problem_with_its_place() {
        assert_eq!(problems_of("x.hcl", "a = 1\nb : 2\n").first().map(|p| (p.0, p.1)), Some((2, 3)));
        assert_eq!(problems_of("x.json", "{\n \"a\": 1,\n}").first().map(|p| (p.0, p.1)), Some((2, 8)));
        for (text, at, message) in [
            ("a = 1\nb = <<EOF\nx\n", (2, 5), "HCL syntax: this heredoc has no end"),
            ("a = [\"x\"\nb = 2\n", (1, 5), "HCL syntax: this list is not closed"),
            ("job \"x\" {\n  group \"g\" {\n  }\n", (1, 9), "HCL syntax: this brace is not closed"),
        ] {
            assert_eq!(problems_of("x.hcl", text), [(at.0, at.1, message.to_owned())], "{text}");
        }
        assert_eq!(problems_of("x.json", "[1]"), [(1, 1, "the file must be one JSON object".to_owned())]);
        assert_eq!(problems_of("x.json", ""), [(1, 1, "the file is empty".to_owned())]);
        assert_eq!(problems_of("x.json", "{} // c").len(), 1);
        assert_eq!(problems_of("x", &" ".repeat(MAX_FILE_BYTES + 1)).len(), 1);
        assert_eq!(problems_of("x.json", "\u{feff}{}").len(), 1);
        assert!(problems_of("x.hcl", "\u{feff}a = 1\n").is_empty(), "HCL skips a byte order mark");
    }

    #[test]
    fn each_key_given_twice_is_reported_and_the_rest_is_read() {
        let text = "a = 1\nb {\n  a = 1\n  a = 2\n  a = 3\n}\na = 4\nc = { \"x\" = 1, \"x\" = 2, y = f() }\n";
        let found: Vec<_> = problems_of("x.hcl", text).into_iter().map(|(l, c, m)| format!("{l}:{c} {m}")).collect();
        assert_eq!(
            found,
            [
                "4:3 `a` is given twice",
                "5:3 `a` is given twice",
                "7:1 `a` is given twice",
                "8:17 `x` is given twice",
                "8:29 HCL functions are not supported: `f()`"
            ]
        );
    }

    proptest! {
        #[test]
        fn no_text_panics_in_either_language(text in "(.|\n){0,200}", near in "[a-b \"{}=\\[\\]$%<.,:0-9\n]{0,60}") {
            for text in [text, near] {
                for file in ["x.hcl", "x.json", "x"] {
                    let _ = read(&SourceText::new(file, text.clone()));
                }
            }
        }
    }
}
