//! One tree for both shapes: what HCL and JSON are read into before anything is checked. Everything knows its place.

use super::diagnostic::{Problems, Span, quote};

/// What stands between two braces, in file order. A key may occur more than once.
#[derive(Debug, Clone, PartialEq)]
pub struct StanzaBody {
    pub entries: Vec<Entry>,
    pub span: Span,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub key: String,
    pub key_span: Span,
    pub form: Form,
    /// Of an HCL block: `task "server" {` has one.
    pub labels: Vec<Label>,
    pub value: ValueNode,
}

/// How an entry was written: in HCL `key = value` and `key { }` are not the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Attribute,
    Block,
    /// In JSON there is no difference.
    Json,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    pub text: String,
    pub span: Span,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ValueNode {
    pub span: Span,
    pub value: Literal,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Literal {
    Null,
    Bool(bool),
    Int(i128),
    /// Always finite.
    Float(f64),
    /// A template: `${reference}` is to be replaced, `$${` means `${`.
    Text(String),
    List(Vec<ValueNode>),
    Object(StanzaBody),
    /// Already reported; no later step reports it again.
    Broken,
}

impl ValueNode {
    /// The template, if it is a text.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Literal::Text(text) => Some(text),
            _ => None,
        }
    }
    pub fn list(&self) -> Option<&[ValueNode]> {
        match &self.value {
            Literal::List(list) => Some(list),
            _ => None,
        }
    }
    pub fn object(&self) -> Option<&StanzaBody> {
        match &self.value {
            Literal::Object(body) => Some(body),
            _ => None,
        }
    }
    /// What it is, as it may stand in a message.
    pub fn describe(&self) -> &'static str {
        match &self.value {
            Literal::Null => "null",
            Literal::Bool(_) => "a boolean",
            Literal::Int(_) => "a whole number",
            Literal::Float(_) => "a number with a fraction",
            Literal::Text(_) => "a text",
            Literal::List(_) => "a list",
            Literal::Object(_) => "an object",
            Literal::Broken => "something unreadable",
        }
    }
}

/// A text as a value. No program and no file name can carry a NUL character.
pub(super) fn text_value(problems: &Problems<'_>, at: &Span, template: String) -> Literal {
    if template.contains('\0') {
        let advice = Some("leave the character out".to_owned());
        problems.error(at, "", "a text cannot contain a NUL character", advice);
        return Literal::Broken;
    }
    Literal::Text(template)
}

/// A number as it is written: whole ones stay exact.
pub(super) fn number(problems: &Problems<'_>, at: &Span, text: &str) -> Literal {
    if let Ok(whole) = text.parse::<i128>() {
        return Literal::Int(whole);
    }
    match text.parse::<f64>() {
        Ok(float) if float.is_finite() && text.contains(['.', 'e', 'E']) => Literal::Float(float),
        _ => {
            let advice = Some("write it in quotes if it is a text".to_owned());
            problems.error(at, "", format!("the number {} is too large", quote(text)), advice);
            Literal::Broken
        }
    }
}

/// A template that yields exactly this text.
pub fn escape(text: &str) -> String {
    text.replace("${", "$${")
}

/// The text of a template without references; `None` if it has any.
pub fn plain(template: &str) -> Option<String> {
    let mut text = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(at) = rest.find("${") {
        let before = rest.get(..at)?;
        let literal = before.strip_suffix('$')?;
        text.push_str(literal);
        text.push_str("${");
        rest = rest.get(at + 2..)?;
    }
    text.push_str(rest);
    Some(text)
}

/// The path of a field.
pub(super) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// The path of what stands at a byte of the file; empty outside of everything.
pub(super) fn path_at(body: &StanzaBody, offset: usize) -> String {
    let stands_here = |e: &&Entry| e.key_span.start <= offset && offset < e.value.span.end.max(e.key_span.end);
    let Some(entry) = body.entries.iter().find(stands_here) else { return String::new() };
    let mut path = entry.key.clone();
    for label in &entry.labels {
        path = join(&path, &label.text);
    }
    let mut node = &entry.value;
    while let Literal::List(list) = &node.value {
        let Some((i, item)) = list.iter().enumerate().find(|(_, item)| item.span.contains(&offset)) else { break };
        path = format!("{path}[{i}]");
        node = item;
    }
    match node.object().map(|inner| path_at(inner, offset)) {
        Some(inner) if !inner.is_empty() => join(&path, &inner),
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_template_with_a_reference_has_no_plain_text() {
        assert_eq!(plain("a ${b} c"), None);
        assert_eq!(plain("a $${b} $ { c").as_deref(), Some("a ${b} $ { c"));
        assert_eq!(plain("$$${b}").as_deref(), Some("$${b}"));
    }

    proptest! {
        #[test]
        fn an_escaped_text_is_plain_and_the_same(text in "[a${}%\" ]{0,12}") {
            prop_assert_eq!(plain(&escape(&text)), Some(text));
        }
    }
}
