//! Tokens to tree. A syntax error ends it; a function that is unknown or refused does not.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Instant;

use super::fault::UnlocatedFault;
use super::lexer::{Token, TokenKind};
use super::literals;
use super::meter::Checked;
use super::tree::{BranchNode, ParsedTemplate, ReadKind, TemplateNode};

/// Blocks and parentheses within each other.
const DEEPEST: usize = 50;
/// Each is located and looked up for advice: a template of faults alone may have a million.
const MOST_FAULTS: usize = 16;

/// Errors: all that is wrong, in file order; the first [`MOST_FAULTS`].
pub(super) fn parse(tokens: Vec<Token<'_>>, deadline: Option<Instant>) -> Result<ParsedTemplate, Vec<UnlocatedFault>> {
    let mut parser = TemplateParser {
        tokens,
        next: 0,
        variables: vec!["$".to_owned()],
        defined: BTreeMap::new(),
        reads: BTreeMap::new(),
        wrongs: Vec::new(),
        deadline,
        loops: 0,
        depth: 0,
    };
    match parser.whole() {
        Ok(main) if parser.wrongs.is_empty() => {
            Ok(ParsedTemplate { main, defined: parser.defined, reads: parser.reads })
        }
        Ok(_) => Err(parser.wrongs),
        Err(wrong) => {
            parser.wrongs.push(wrong);
            Err(parser.wrongs)
        }
    }
}

pub(super) struct TemplateParser<'t> {
    tokens: Vec<Token<'t>>,
    pub(super) next: usize,
    /// Those in scope.
    pub(super) variables: Vec<String>,
    defined: BTreeMap<String, Vec<TemplateNode>>,
    pub(super) reads: BTreeMap<String, (ReadKind, Range<usize>)>,
    wrongs: Vec<UnlocatedFault>,
    /// When parsing is abandoned.
    pub(super) deadline: Option<Instant>,
    /// How many `range` are open.
    loops: usize,
    depth: usize,
}

/// What ended a list of nodes.
#[derive(Debug, Clone, PartialEq)]
enum NodeListEnd {
    /// The text.
    Text,
    End,
    /// `{{ else`, with nothing of what follows read.
    Else(Range<usize>),
}

impl<'t> TemplateParser<'t> {
    pub(super) fn peek(&self) -> (TokenKind, &'t str, Range<usize>) {
        self.at(self.next)
    }
    pub(super) fn at(&self, index: usize) -> (TokenKind, &'t str, Range<usize>) {
        let token = self.tokens.get(index).or(self.tokens.last());
        token.map_or((TokenKind::End, "", 0..0), |token| (token.kind, token.text, token.span.clone()))
    }
    fn take(&mut self) -> (TokenKind, &'t str, Range<usize>) {
        let token = self.peek();
        self.next += 1;
        token
    }
    pub(super) fn skip_space(&mut self) {
        while self.peek().0 == TokenKind::Space {
            self.next += 1;
        }
    }
    pub(super) fn peek_solid(&mut self) -> (TokenKind, &'t str, Range<usize>) {
        self.skip_space();
        self.peek()
    }
    pub(super) fn take_solid(&mut self) -> (TokenKind, &'t str, Range<usize>) {
        self.skip_space();
        self.take()
    }
    /// Parsing goes on after this fault. Errors: it is the last one that is reported.
    pub(super) fn report(&mut self, wrong: UnlocatedFault) -> Checked {
        if self.wrongs.len() + 1 >= MOST_FAULTS {
            return Err(wrong);
        }
        self.wrongs.push(wrong);
        Ok(())
    }
    pub(super) fn unexpected<T>(&mut self, context: &str) -> Checked<T> {
        let (kind, text, span) = self.peek_solid();
        let shown = match kind {
            TokenKind::End => "the end of the template".to_owned(),
            TokenKind::Right => format!("the end of the action in {context}"),
            _ => format!("{text} in {context}"),
        };
        Err(UnlocatedFault::new(span, format!("unexpected {shown}")))
    }
    fn close(&mut self, context: &str) -> Checked {
        match self.peek_solid().0 {
            TokenKind::Right => {
                self.next += 1;
                Ok(())
            }
            _ => self.unexpected(context),
        }
    }
    pub(super) fn deeper<T>(
        &mut self,
        span: &Range<usize>,
        inside: impl FnOnce(&mut Self) -> Checked<T>,
    ) -> Checked<T> {
        if self.depth >= DEEPEST {
            return Err(UnlocatedFault::new(
                span.clone(),
                format!("blocks and parentheses nest deeper than {DEEPEST}"),
            ));
        }
        self.depth += 1;
        let outcome = inside(self);
        self.depth -= 1;
        outcome
    }

    fn whole(&mut self) -> Checked<Vec<TemplateNode>> {
        match self.list(true)? {
            (nodes, NodeListEnd::Text) => Ok(nodes),
            (_, NodeListEnd::End | NodeListEnd::Else(_)) => {
                self.next = self.next.saturating_sub(1);
                let (_, text, span) = self.peek();
                Err(UnlocatedFault::new(span, format!("unexpected {{{{{text}}}}}: no block is open")))
            }
        }
    }

    /// Nodes up to `end` or `else`, whose keyword is taken.
    fn list(&mut self, is_top: bool) -> Checked<(Vec<TemplateNode>, NodeListEnd)> {
        let mut nodes = Vec::new();
        loop {
            let (kind, text, span) = self.take();
            match kind {
                TokenKind::Text => nodes.push(TemplateNode::Text(text.to_owned(), span)),
                TokenKind::Left => {
                    let (kind, word, at) = self.peek_solid();
                    match (kind, word) {
                        (TokenKind::Identifier, "end") => {
                            self.next += 1;
                            // `whole` points at the keyword.
                            return if is_top { Ok((nodes, NodeListEnd::End)) } else { self.end(nodes) };
                        }
                        (TokenKind::Identifier, "else") => {
                            self.next += 1;
                            return Ok((nodes, NodeListEnd::Else(at)));
                        }
                        (TokenKind::Identifier, "define") if is_top => self.define(at)?,
                        (TokenKind::Identifier, "define") => {
                            return Err(UnlocatedFault::new(
                                at,
                                "unexpected {{define}}: it stands outside of all blocks",
                            ));
                        }
                        _ => nodes.push(self.action()?),
                    }
                }
                TokenKind::End => {
                    self.next -= 1;
                    return Ok((nodes, NodeListEnd::Text));
                }
                _ => {
                    self.next -= 1;
                    return self.unexpected("the template");
                }
            }
        }
    }
    fn end(&mut self, nodes: Vec<TemplateNode>) -> Checked<(Vec<TemplateNode>, NodeListEnd)> {
        self.close("end")?;
        Ok((nodes, NodeListEnd::End))
    }

    fn action(&mut self) -> Checked<TemplateNode> {
        let (kind, word, span) = self.peek_solid();
        if kind == TokenKind::Identifier {
            match word {
                "if" | "with" | "range" => {
                    self.next += 1;
                    return self.deeper(&span.clone(), |parser| parser.branch(word, span));
                }
                "block" => {
                    self.next += 1;
                    return self.deeper(&span.clone(), |parser| parser.block(span));
                }
                "template" => {
                    self.next += 1;
                    let (name, span) = self.name("template", span)?;
                    let data = match self.peek_solid().0 {
                        TokenKind::Right => None,
                        _ => Some(self.pipeline("template", TokenKind::Right)?),
                    };
                    self.close("template")?;
                    return Ok(TemplateNode::Call { name, data, span });
                }
                "break" | "continue" => {
                    self.next += 1;
                    if self.loops == 0 {
                        return Err(UnlocatedFault::new(span, format!("{{{{{word}}}}} stands outside of a range")));
                    }
                    self.close(word)?;
                    return Ok(if word == "break" { TemplateNode::Break } else { TemplateNode::Continue });
                }
                _ => {}
            }
        }
        // Its variables stay: an action is no block.
        let pipeline = self.pipeline("the action", TokenKind::Right)?;
        self.close("the action")?;
        Ok(TemplateNode::Action(pipeline))
    }

    fn branch(&mut self, word: &'t str, opened: Range<usize>) -> Checked<TemplateNode> {
        let scope = self.variables.len();
        let pipeline = self.pipeline(word, TokenKind::Right)?;
        self.close(word)?;
        self.loops += usize::from(word == "range");
        let inner = self.variables.len();
        let (body, end) = self.list(false)?;
        self.loops -= usize::from(word == "range");
        self.variables.truncate(inner);
        let otherwise = match end {
            NodeListEnd::End => Vec::new(),
            NodeListEnd::Else(at) => self.otherwise(word, &opened, at)?,
            NodeListEnd::Text => return Err(unclosed(word, opened)),
        };
        self.variables.truncate(scope);
        let branch = BranchNode { pipeline, body, otherwise };
        Ok(match word {
            "if" => TemplateNode::If(branch),
            "with" => TemplateNode::With(branch),
            _ => TemplateNode::Range(branch),
        })
    }

    /// Behind `else`: another condition, or a list of nodes and `end`.
    fn otherwise(&mut self, word: &'t str, opened: &Range<usize>, at: Range<usize>) -> Checked<Vec<TemplateNode>> {
        let (kind, next, span) = self.peek_solid();
        if kind == TokenKind::Identifier && next == word && word != "range" {
            self.next += 1;
            // The inner branch takes the one `end` of both.
            return Ok(vec![self.deeper(&span.clone(), |parser| parser.branch(word, span))?]);
        }
        self.close("else")?;
        match self.list(false)? {
            (nodes, NodeListEnd::End) => Ok(nodes),
            (_, NodeListEnd::Else(second)) => {
                let message = format!("a second {{{{else}}}} of the same {word}");
                Err(UnlocatedFault::new(second, message).advise(format!("the first begins at byte {}", at.start)))
            }
            (_, NodeListEnd::Text) => Err(unclosed(word, opened.clone())),
        }
    }

    fn define(&mut self, opened: Range<usize>) -> Checked {
        self.next += 1;
        let (name, at) = self.name("define", opened.clone())?;
        self.close("define")?;
        let nodes = self.definition("define", opened)?;
        self.add(name, nodes, at)
    }

    /// A `block` is a definition and its call.
    fn block(&mut self, opened: Range<usize>) -> Checked<TemplateNode> {
        let (name, at) = self.name("block", opened.clone())?;
        let data = self.pipeline("block", TokenKind::Right)?;
        self.close("block")?;
        let nodes = self.definition("block", opened)?;
        self.add(name.clone(), nodes, at.clone())?;
        Ok(TemplateNode::Call { name, data: Some(data), span: at })
    }

    /// The nodes of a definition, which sees no variable of what is around it.
    fn definition(&mut self, word: &str, opened: Range<usize>) -> Checked<Vec<TemplateNode>> {
        let outer = std::mem::replace(&mut self.variables, vec!["$".to_owned()]);
        let loops = std::mem::take(&mut self.loops);
        let (nodes, end) = self.list(false)?;
        self.variables = outer;
        self.loops = loops;
        match end {
            NodeListEnd::End => Ok(nodes),
            NodeListEnd::Else(at) => Err(UnlocatedFault::new(at, format!("unexpected {{{{else}}}} in {word}"))),
            NodeListEnd::Text => Err(unclosed(word, opened)),
        }
    }

    fn add(&mut self, name: String, nodes: Vec<TemplateNode>, at: Range<usize>) -> Checked {
        let is_empty = |nodes: &[TemplateNode]| {
            nodes.iter().all(|node| matches!(node, TemplateNode::Text(text, _) if text.trim().is_empty()))
        };
        match self.defined.get(&name) {
            Some(there) if is_empty(&nodes) && !is_empty(there) => Ok(()),
            Some(there) if !is_empty(there) => {
                Err(UnlocatedFault::new(at, format!("template {name:?} is defined a second time")))
            }
            _ => {
                self.defined.insert(name, nodes);
                Ok(())
            }
        }
    }

    /// The quoted name of a template, and where it stands.
    fn name(&mut self, word: &str, after: Range<usize>) -> Checked<(String, Range<usize>)> {
        let (kind, text, span) = self.take_solid();
        let name = match kind {
            TokenKind::Quoted => literals::quoted(text).map_err(|why| UnlocatedFault::new(span.clone(), why))?,
            TokenKind::Raw => text.trim_matches('`').to_owned(),
            _ => return Err(UnlocatedFault::new(after, format!("{word} takes the name of a template in quotes"))),
        };
        Ok((name, span))
    }
}

fn unclosed(word: &str, opened: Range<usize>) -> UnlocatedFault {
    UnlocatedFault::new(opened, format!("{{{{{word}}}}} has no {{{{end}}}}"))
}
