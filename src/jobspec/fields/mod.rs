//! Reading a stanza by a table of its words and their shapes; everything else is refused with its place.
//!
//! ```
//! use allostat::jobspec::diagnostic::{Problems, SourceText};
//! use allostat::jobspec::fields::{Fields, Stanza, Word};
//! use allostat::jobspec::read;
//!
//! static SERVER: Stanza = Stanza { name: "server", words: &[Word::value("listen"), Word::value("workers")] };
//! let source = SourceText::new("x.hcl", "listen = \"127.0.0.1:80\"\nwokers = 3\n");
//! let problems = Problems::new(&source);
//! let body = read::read_into(&problems, None);
//! let fields = Fields::open(&body, &SERVER, &[&SERVER], "", &problems);
//! assert_eq!(fields.text("listen").map(|at| at.value).as_deref(), Some("127.0.0.1:80"));
//! assert_eq!(fields.integer("workers", 1..=64), None);
//! let (errors, _warnings) = problems.into_parts();
//! assert_eq!(errors.0[0].suggestion.as_deref(), Some("did you mean `workers`?"));
//! ```

mod getters;

use std::collections::HashMap;

use super::diagnostic::{Problems, Span, quote};
use super::tree::{Entry, Form, Literal, StanzaBody, ValueNode, join};
use crate::model::nearest::nearest;

/// A stanza's name and the words that may stand in it.
#[derive(Debug)]
pub struct Stanza {
    pub name: &'static str,
    pub words: &'static [Word],
}

#[derive(Debug, Clone, Copy)]
pub struct Word {
    pub name: &'static str,
    pub shape: Shape,
    pub support: Support,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// `key = value`
    Value,
    /// `key { }`, once
    Stanza,
    /// `key { }`, as often as one likes
    Stanzas,
    /// `key "name" { }`, as often as one likes
    Named,
    /// `key { }` or `key = { }` with free keys, once
    Map,
    /// Any of them, as often as one likes: for what is not read further.
    Any,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    Honoured,
    /// Kept or dropped, and without effect: why. One warning for each word, however often it occurs.
    Ignored(&'static str),
    /// Known, refused: why.
    Refused(&'static str),
}

impl Word {
    const fn new(name: &'static str, shape: Shape, support: Support) -> Word {
        Word { name, shape, support }
    }
    pub const fn value(name: &'static str) -> Word {
        Word::new(name, Shape::Value, Support::Honoured)
    }
    pub const fn stanza(name: &'static str) -> Word {
        Word::new(name, Shape::Stanza, Support::Honoured)
    }
    pub const fn stanzas(name: &'static str) -> Word {
        Word::new(name, Shape::Stanzas, Support::Honoured)
    }
    pub const fn named(name: &'static str) -> Word {
        Word::new(name, Shape::Named, Support::Honoured)
    }
    pub const fn map(name: &'static str) -> Word {
        Word::new(name, Shape::Map, Support::Honoured)
    }
    pub const fn ignored(name: &'static str, why: &'static str) -> Word {
        Word::new(name, Shape::Any, Support::Ignored(why))
    }
    pub const fn refused(name: &'static str, why: &'static str) -> Word {
        Word::new(name, Shape::Any, Support::Refused(why))
    }
    /// Honoured, yet a warning says what it does not do.
    pub const fn but(self, why: &'static str) -> Word {
        Word { support: Support::Ignored(why), ..self }
    }
}

/// A value and its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Spanned<T> {
    pub value: T,
    pub span: Span,
}

/// One of the stanzas that carry a name.
#[derive(Debug, Clone, Copy)]
pub struct NamedBody<'a> {
    pub name: &'a str,
    pub name_span: &'a Span,
    pub body: &'a StanzaBody,
}

/// A stanza whose words were checked; the getters record a wrong type or an impossible value and yield `None`, as they
/// do for what is not there.
pub struct Fields<'a> {
    body: &'a StanzaBody,
    stanza: &'static Stanza,
    path: String,
    problems: &'a Problems<'a>,
}

impl<'a> Fields<'a> {
    /// Checks every key of `body` against the table. `family` are all tables of this kind of file: a word of another
    /// one is reported with the place where it belongs. `path` is the path of the stanza, empty at the top.
    pub fn open(
        body: &'a StanzaBody,
        stanza: &'static Stanza,
        family: &[&'static Stanza],
        path: impl Into<String>,
        problems: &'a Problems<'a>,
    ) -> Fields<'a> {
        let fields = Fields { body, stanza, path: path.into(), problems };
        let mut first: HashMap<&str, &Entry> = HashMap::new();
        for entry in &body.entries {
            fields.check(entry, first.get(entry.key.as_str()).copied(), family);
            first.entry(&entry.key).or_insert(entry);
        }
        fields
    }

    fn check(&self, entry: &Entry, earlier: Option<&Entry>, family: &[&'static Stanza]) {
        let path = self.path_of(&entry.key);
        let Some(word) = self.stanza.words.iter().find(|w| w.name == entry.key) else {
            return self.unknown(entry, &path, family);
        };
        let name = quote(word.name);
        if let Support::Refused(why) = word.support {
            let message = format!("{name} is not supported: {why}");
            self.problems.error(&entry.key_span, &path, message, None);
            return;
        }
        if let Some(earlier) = earlier
            && (matches!(word.shape, Shape::Value | Shape::Stanza | Shape::Map)
                || (matches!(word.shape, Shape::Named | Shape::Stanzas) && entry.form == Form::Json))
        {
            let (line, _, _) = self.problems.source().locate(earlier.key_span.start);
            let message = format!("{name} is given twice, first in line {line}");
            self.problems.error(&entry.key_span, &path, message, Some("keep one of them".to_owned()));
        }
        let wrong = match (word.shape, entry.form) {
            (Shape::Value, Form::Block) => Some(format!("{name} is a value: write `{} = ...`", word.name)),
            (Shape::Stanza | Shape::Stanzas, Form::Attribute) => {
                Some(format!("{name} is a stanza: write `{} {{ ... }}` without `=`", word.name))
            }
            (Shape::Named, Form::Attribute) => {
                Some(format!("{name} is a stanza with a name: write `{} \"name\" {{ ... }}`", word.name))
            }
            (Shape::Stanza | Shape::Stanzas | Shape::Map, Form::Block) if !entry.labels.is_empty() => {
                Some(format!("{name} takes no name: write `{} {{ ... }}`", word.name))
            }
            (Shape::Named, Form::Block) if entry.labels.len() != 1 => {
                Some(format!("{name} takes one name: write `{} \"name\" {{ ... }}`", word.name))
            }
            _ => None,
        };
        if let Some(message) = wrong {
            self.problems.error(&entry.key_span, &path, message, None);
        }
    }

    fn unknown(&self, entry: &Entry, path: &str, family: &[&'static Stanza]) {
        let key = quote(&entry.key);
        let here = self.place();
        let mut homes: Vec<String> = family
            .iter()
            .filter(|s| !s.name.is_empty() && s.name != self.stanza.name)
            .filter(|s| s.words.iter().any(|w| w.name == entry.key))
            .map(|s| format!("`{}`", s.name))
            .collect();
        // Several tables have the same name: those of nodes and those of devices.
        homes.dedup();
        if !homes.is_empty() {
            let message = format!("{key} belongs in {}, not in {here}", homes.join(" or "));
            self.problems.error(&entry.key_span, path, message, None);
            return;
        }
        let suggestion = match nearest(&entry.key, self.stanza.words.iter().map(|w| w.name)) {
            Some(word) => Some(format!("did you mean `{word}`?")),
            None => {
                let known: Vec<&str> =
                    self.stanza.words.iter().filter(|w| w.support == Support::Honoured).map(|w| w.name).collect();
                (!known.is_empty()).then(|| format!("known here: {}", known.join(", ")))
            }
        };
        self.problems.error(&entry.key_span, path, format!("{key} is not a field of {here}"), suggestion);
    }

    fn place(&self) -> String {
        if self.stanza.name.is_empty() { "the file".to_owned() } else { format!("`{}`", self.stanza.name) }
    }

    /// What its stanza is called: `task`.
    pub fn stanza_name(&self) -> &'static str {
        self.stanza.name
    }
    pub fn path(&self) -> &str {
        &self.path
    }
    pub fn body(&self) -> &'a StanzaBody {
        self.body
    }
    pub fn problems(&self) -> &'a Problems<'a> {
        self.problems
    }
    /// The path of one of its fields.
    pub fn path_of(&self, key: &str) -> String {
        join(&self.path, key)
    }
    /// Records a problem of one of its fields.
    pub fn error(&self, span: &Span, key: &str, message: impl Into<String>, suggestion: Option<String>) {
        self.problems.error(span, &self.path_of(key), message, suggestion);
    }
    /// All entries with this key. What is `null` is as if it were not there.
    pub fn entries(&self, key: &str) -> impl Iterator<Item = &'a Entry> {
        let key = key.to_owned();
        self.body.entries.iter().filter(move |e| e.key == key && !matches!(e.value.value, Literal::Null))
    }
    pub fn entry(&self, key: &str) -> Option<&'a Entry> {
        self.entries(key).next()
    }

    /// The body of a stanza without a name.
    pub fn stanza(&self, key: &str) -> Option<&'a StanzaBody> {
        let entry = self.entry(key)?;
        if entry.form == Form::Attribute {
            return None;
        }
        self.object(entry)
    }
    /// The object of an entry. JSON may wrap the one stanza in a list.
    fn object(&self, entry: &'a Entry) -> Option<&'a StanzaBody> {
        let node = match &entry.value.value {
            Literal::List(list) if entry.form == Form::Json && list.len() == 1 => list.first()?,
            _ => &entry.value,
        };
        match &node.value {
            Literal::Object(body) => Some(body),
            Literal::Broken => None,
            _ => {
                self.wrong_type(&entry.key, node, "an object", None);
                None
            }
        }
    }
    /// All stanzas without a name, in file order, and where each begins. JSON may give several as a list.
    pub fn stanzas(&self, key: &str) -> Vec<(&'a Span, &'a StanzaBody)> {
        let mut found = Vec::new();
        for entry in self.entries(key).filter(|entry| entry.form != Form::Attribute) {
            let nodes = match &entry.value.value {
                Literal::List(list) if entry.form == Form::Json => list.as_slice(),
                _ => std::slice::from_ref(&entry.value),
            };
            for node in nodes {
                match &node.value {
                    Literal::Object(body) if entry.form == Form::Block => found.push((&entry.key_span, body)),
                    Literal::Object(body) => found.push((&node.span, body)),
                    Literal::Broken => {}
                    _ => self.wrong_type(key, node, "an object", None),
                }
            }
        }
        found
    }
    /// All stanzas with a name, in file order. JSON: `{"task": {"a": {}, "b": {}}}` or `{"task": [{"a": {}}]}`.
    pub fn named(&self, key: &str) -> Vec<NamedBody<'a>> {
        let mut found = Vec::new();
        for entry in self.entries(key) {
            match (entry.form, &entry.value.value) {
                (Form::Block, Literal::Object(body)) => {
                    if let [label] = entry.labels.as_slice() {
                        found.push(NamedBody { name: &label.text, name_span: &label.span, body });
                    }
                }
                (Form::Json, Literal::List(list)) => {
                    list.iter().for_each(|node| self.named_in(key, node, &mut found));
                }
                (Form::Json, _) => self.named_in(key, &entry.value, &mut found),
                // Reported when it was opened.
                (Form::Attribute | Form::Block, _) => {}
            }
        }
        found
    }
    fn named_in(&self, key: &str, node: &'a ValueNode, found: &mut Vec<NamedBody<'a>>) {
        let Literal::Object(names) = &node.value else {
            self.wrong_type(key, node, "an object with the name as key", None);
            return;
        };
        for inner in &names.entries {
            // A list here is the same stanza several times.
            let bodies = match &inner.value.value {
                Literal::List(list) => list.as_slice(),
                _ => std::slice::from_ref(&inner.value),
            };
            for node in bodies {
                match &node.value {
                    Literal::Object(body) => {
                        found.push(NamedBody { name: &inner.key, name_span: &inner.key_span, body });
                    }
                    Literal::Broken => {}
                    _ => {
                        let message = format!(
                            "{} takes an object under its name: {{\"{key}\": {{\"name\": {{...}}}}}}",
                            quote(key)
                        );
                        self.error(&node.span, key, message, None);
                    }
                }
            }
        }
    }
}

/// One warning for each word without full effect, at its first place, however often it occurs in the file.
pub fn warn_ignored(
    body: &StanzaBody,
    stanza: &Stanza,
    path: &str,
    seen: &mut Vec<&'static str>,
    problems: &Problems<'_>,
) {
    for entry in &body.entries {
        let Some(word) = stanza.words.iter().find(|w| w.name == entry.key) else { continue };
        if let Support::Ignored(why) = word.support
            && !seen.contains(&word.name)
        {
            seen.push(word.name);
            problems.warn(&entry.key_span, &join(path, word.name), format!("{}: {why}", quote(word.name)), None);
        }
    }
}
