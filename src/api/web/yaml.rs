//! YAML as a tree in which each node knows its place: what the web configuration file needs of it. Pure.
//!
//! Anchors, tags and further documents are refused: no such file has them, and each could mean something else than is
//! read.

use saphyr_parser::{Event, Parser, ScalarStyle, StrInput};

use crate::jobspec::diagnostic::Span;

/// The format has three levels; what is deeper is a mistake, and must not cost stack.
const DEEPEST: usize = 8;

#[derive(Debug)]
pub(super) struct YamlNode {
    /// Bytes of the text.
    pub span: Span,
    pub content: YamlContent,
}

#[derive(Debug)]
pub(super) enum YamlContent {
    /// Nothing, `~` or `null`.
    Null,
    Scalar {
        text: String,
        /// Without quotes: `true` is a boolean there.
        is_plain: bool,
    },
    List(Vec<YamlNode>),
    /// In the order of the file, what is there twice included.
    Map(Vec<(YamlKey, YamlNode)>),
}

#[derive(Debug)]
pub(super) struct YamlKey {
    pub text: String,
    pub span: Span,
}

/// What is no YAML, or none that is read here.
#[derive(Debug)]
pub(super) struct YamlError {
    pub span: Span,
    pub message: String,
}

impl YamlContent {
    /// In the words of an error.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            YamlContent::Null => "nothing",
            YamlContent::Scalar { .. } => "a value",
            YamlContent::List(_) => "a list",
            YamlContent::Map(_) => "a mapping",
        }
    }
}

/// Errors: the first one; a text without a document is [`YamlContent::Null`].
pub(super) fn tree(text: &str) -> Result<YamlNode, YamlError> {
    // The parser counts characters, a span bytes.
    let starts: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    let mut reader = Reader { parser: Parser::new_from_str(text), starts };
    let mut document = None;
    loop {
        let (event, span) = reader.next()?;
        match event {
            Event::StreamStart | Event::DocumentEnd | Event::Nothing => {}
            Event::StreamEnd => break,
            Event::DocumentStart(_) if document.is_some() => {
                return Err(YamlError { span, message: "a second document begins here: one is read".to_owned() });
            }
            Event::DocumentStart(_) => {
                let (event, span) = reader.next()?;
                document = Some(reader.node(event, span, 0)?);
            }
            _ => return Err(YamlError { span, message: "this stands outside of the document".to_owned() }),
        }
    }
    Ok(document.unwrap_or(YamlNode { span: 0..0, content: YamlContent::Null }))
}

struct Reader<'t> {
    parser: Parser<'t, StrInput<'t>>,
    starts: Vec<usize>,
}

impl<'t> Reader<'t> {
    fn byte(&self, character: usize) -> usize {
        self.starts.get(character).or(self.starts.last()).copied().unwrap_or(0)
    }
    fn next(&mut self) -> Result<(Event<'t>, Span), YamlError> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => {
                let (start, end) = (self.byte(span.start.index()), self.byte(span.end.index()));
                Ok((event, start..end.max(start)))
            }
            Some(Err(error)) => {
                let at = self.byte(error.marker().index());
                Err(YamlError { span: at..at, message: format!("this is no YAML: {}", error.info()) })
            }
            None => Ok((Event::StreamEnd, 0..0)),
        }
    }

    fn node(&mut self, event: Event<'t>, span: Span, depth: usize) -> Result<YamlNode, YamlError> {
        let refused = |span, message: &str| Err(YamlError { span, message: message.to_owned() });
        if depth > DEEPEST {
            return refused(span, "this is nested deeper than anything in this file");
        }
        let (anchor, tag) = match &event {
            Event::Scalar(_, _, anchor, tag) | Event::SequenceStart(anchor, tag) | Event::MappingStart(anchor, tag) => {
                (*anchor, tag.is_some())
            }
            _ => (0, false),
        };
        if anchor != 0 || matches!(event, Event::Alias(_)) {
            return refused(span, "anchors and aliases are not read here: write it out");
        }
        if tag {
            return refused(span, "tags are not read here: leave it out");
        }
        let start = span.start;
        let mut end = span.end;
        let content = match event {
            Event::Scalar(text, style, ..) => {
                let is_plain = style == ScalarStyle::Plain;
                match &*text {
                    "" | "~" | "null" | "Null" | "NULL" if is_plain => YamlContent::Null,
                    _ => YamlContent::Scalar { text: text.into_owned(), is_plain },
                }
            }
            Event::SequenceStart(..) => {
                let mut items = Vec::new();
                loop {
                    match self.next()? {
                        (Event::SequenceEnd, last) => break end = last.end,
                        (event, span) => items.push(self.node(event, span, depth + 1)?),
                    }
                }
                YamlContent::List(items)
            }
            Event::MappingStart(..) => {
                let mut entries = Vec::new();
                loop {
                    let key = match self.next()? {
                        (Event::MappingEnd, last) => break end = last.end,
                        (event, span) => self.node(event, span, depth + 1)?,
                    };
                    let YamlContent::Scalar { text, .. } = key.content else {
                        return refused(key.span, "the name of a field is wanted here");
                    };
                    let (event, span) = self.next()?;
                    entries.push((YamlKey { text, span: key.span }, self.node(event, span, depth + 1)?));
                }
                YamlContent::Map(entries)
            }
            _ => return refused(span, "a value is missing here"),
        };
        Ok(YamlNode { span: start..end.max(start), content })
    }
}
