//! What a PromQL expression names: metrics, labels, windows. Not a parser of the language (a real Prometheus judges
//! that in `live`), only of its names, and it refuses what it does not know instead of skipping it.

use std::collections::BTreeSet;

/// Label, operator, value.
pub type Matcher = (String, String, String);

/// `name{label="value", ...}` and the functions around it, outermost first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    pub name: String,
    pub matchers: Vec<Matcher>,
    pub inside: Vec<String>,
    /// What stands in `[...]`.
    pub window: Option<String>,
}

impl Selector {
    pub fn has(&self, label: &str, operator: &str, value: &str) -> bool {
        self.matchers.iter().any(|(l, o, v)| l == label && o == operator && v == value)
    }
    /// Itself, without what is around it.
    pub fn bare(&self) -> String {
        let matchers: Vec<String> = self.matchers.iter().map(|(l, o, v)| format!("{l}{o}{v:?}")).collect();
        format!("{}{{{}}}", self.name, matchers.join(","))
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    pub selectors: Vec<Selector>,
    /// Labels after `by`, `without`, `on`, `ignoring`, `group_left` and `group_right`.
    pub grouping: BTreeSet<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    Text(String),
    Number(String),
    Symbol(String),
}

const LISTS: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
const WORDS: [&str; 6] = ["and", "or", "unless", "bool", "offset", "atan2"];

pub fn names(expression: &str) -> Result<Names, String> {
    let tokens = tokens(expression)?;
    let mut found = Names::default();
    // One entry per open parenthesis: the function that it belongs to, or nothing.
    let mut open: Vec<Option<String>> = Vec::new();
    let mut function: Option<String> = None;
    let mut at = 0;
    let symbol = |at: usize, expected: &str| tokens.get(at) == Some(&Token::Symbol(expected.into()));
    while let Some(token) = tokens.get(at) {
        at += 1;
        match token {
            Token::Word(word) if LISTS.contains(&word.as_str()) => {
                // `group_left` may stand without a list.
                if symbol(at, "(") {
                    let (labels, after) = list(&tokens, at + 1)?;
                    found.grouping.extend(labels);
                    at = after;
                }
            }
            Token::Word(word) if WORDS.contains(&word.as_str()) => {}
            Token::Word(word) => {
                let modifier = matches!(tokens.get(at), Some(Token::Word(next)) if next == "by" || next == "without");
                if symbol(at, "(") || modifier {
                    function = Some(word.clone());
                    continue;
                }
                let mut selector = Selector {
                    name: word.clone(),
                    matchers: Vec::new(),
                    inside: open.iter().flatten().cloned().collect(),
                    window: None,
                };
                if symbol(at, "{") {
                    (selector.matchers, at) = matchers(&tokens, at + 1)?;
                }
                if symbol(at, "[") {
                    let Some(Token::Number(window)) = tokens.get(at + 1).filter(|_| symbol(at + 2, "]")) else {
                        return Err("a window must be one duration".into());
                    };
                    selector.window = Some(window.clone());
                    at += 3;
                }
                found.selectors.push(selector);
            }
            Token::Symbol(s) if s == "(" => open.push(function.take()),
            Token::Symbol(s) if s == ")" => drop(open.pop().ok_or("a parenthesis too many")?),
            Token::Symbol(s) if s == "{" => return Err("a selector needs the name of its metric".into()),
            Token::Symbol(s) if s == "[" => return Err("a window needs a selector".into()),
            Token::Symbol(_) | Token::Number(_) | Token::Text(_) => {}
        }
    }
    if open.is_empty() { Ok(found) } else { Err("a parenthesis is open".into()) }
}

/// `a, b)`.
fn list(tokens: &[Token], mut at: usize) -> Result<(Vec<String>, usize), String> {
    let mut labels = Vec::new();
    loop {
        match tokens.get(at) {
            Some(Token::Word(label)) => labels.push(label.clone()),
            Some(Token::Symbol(s)) if s == "," => {}
            Some(Token::Symbol(s)) if s == ")" => return Ok((labels, at + 1)),
            other => return Err(format!("{other:?} in a list of labels")),
        }
        at += 1;
    }
}

/// `a="b", c=~"d"}`.
fn matchers(tokens: &[Token], mut at: usize) -> Result<(Vec<Matcher>, usize), String> {
    let mut matchers = Vec::new();
    loop {
        match (tokens.get(at), tokens.get(at + 1), tokens.get(at + 2)) {
            (Some(Token::Word(label)), Some(Token::Symbol(operator)), Some(Token::Text(value))) => {
                matchers.push((label.clone(), operator.clone(), value.clone()));
                at += 3;
            }
            (Some(Token::Symbol(s)), _, _) if s == "," => at += 1,
            (Some(Token::Symbol(s)), _, _) if s == "}" => return Ok((matchers, at + 1)),
            (other, _, _) => return Err(format!("{other:?} in a list of matchers")),
        }
    }
}

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let len = match first {
            c if c.is_whitespace() => c.len_utf8(),
            '"' => {
                let end = rest[1..].find('"').ok_or("a text is not closed")? + 1;
                let inner = &rest[1..end];
                if inner.contains('\\') {
                    return Err(format!("an escape in {inner:?}: teach this reader first"));
                }
                tokens.push(Token::Text(inner.into()));
                end + 1
            }
            c if c.is_ascii_digit() || c == '$' => {
                let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "_.$".contains(c))).unwrap_or(rest.len());
                tokens.push(Token::Number(rest[..end].into()));
                end
            }
            c if c.is_ascii_alphabetic() || c == '_' || c == ':' => {
                let end =
                    rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':')).unwrap_or(rest.len());
                tokens.push(Token::Word(rest[..end].into()));
                end
            }
            c if "=!<>~".contains(c) => {
                let end = rest.find(|c: char| !"=!<>~".contains(c)).unwrap_or(rest.len());
                tokens.push(Token::Symbol(rest[..end].into()));
                end
            }
            c if "(){}[],+-*/%^@".contains(c) => {
                tokens.push(Token::Symbol(c.into()));
                1
            }
            c => return Err(format!("{c:?} is not known here")),
        };
        rest = &rest[len..];
    }
    Ok(tokens)
}

#[test]
fn metrics_labels_windows_and_functions_are_found() {
    let found = names(
        r#"topk(3, sum by (task, code) (rate(a_total{x="1", y=~"$y"}[$__rate_interval])) / on (x) group_left () (b > bool 0)) or c offset 10m"#,
    )
    .unwrap();
    let brief: Vec<_> =
        found.selectors.iter().map(|s| (s.name.as_str(), s.inside.join(" "), s.window.clone())).collect();
    assert_eq!(
        brief,
        [
            ("a_total", "topk sum rate".to_owned(), Some("$__rate_interval".to_owned())),
            ("b", "topk".to_owned(), None),
            ("c", String::new(), None)
        ]
    );
    assert!(found.selectors[0].has("y", "=~", "$y") && !found.selectors[0].has("y", "=", "$y"));
    assert_eq!(found.grouping.into_iter().collect::<Vec<_>>(), ["code", "task", "x"]);
}

#[test]
fn unsupported_promql_is_refused() {
    for odd in [r#"{__name__=~"a.*"}"#, "sum(a", "a)", "a{b}", r#"a{b="c}"#, "a[5m:1m]", "a;b", r#"a{b="\"c"}"#] {
        assert!(names(odd).is_err(), "{odd} must be refused: {:?}", names(odd));
    }
}
