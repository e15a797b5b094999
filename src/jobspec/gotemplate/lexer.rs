//! The tokens of a template.

use std::ops::Range;

use super::fault::UnlocatedFault;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenKind {
    /// Outside of actions, trimmed.
    Text,
    Left,
    Right,
    Space,
    Identifier,
    /// With its dot.
    Field,
    /// With its `$`.
    Variable,
    Dot,
    Number,
    Character,
    /// In double quotes, with them.
    Quoted,
    /// In backticks, with them.
    Raw,
    Pipe,
    LeftParenthesis,
    RightParenthesis,
    Comma,
    Declare,
    Assign,
    End,
}

#[derive(Debug, Clone)]
pub(super) struct Token<'t> {
    pub(super) kind: TokenKind,
    pub(super) text: &'t str,
    pub(super) span: Range<usize>,
}

const BLANKS: [char; 4] = [' ', '\t', '\r', '\n'];

/// Errors: the first place that is no token.
pub(super) fn tokens<'t>(text: &'t str, left: &str, right: &str) -> Result<Vec<Token<'t>>, UnlocatedFault> {
    let mut lexer = Lexer { text, left, right, at: 0, tokens: Vec::new() };
    lexer.outside()?;
    Ok(lexer.tokens)
}

struct Lexer<'t, 'd> {
    text: &'t str,
    left: &'d str,
    right: &'d str,
    at: usize,
    tokens: Vec<Token<'t>>,
}

impl<'t> Lexer<'t, '_> {
    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or("")
    }
    fn wrong<T>(&self, start: usize, message: impl Into<String>) -> Result<T, UnlocatedFault> {
        Err(UnlocatedFault::new(start..self.at.max(start), message))
    }
    fn push(&mut self, kind: TokenKind, start: usize, end: usize) {
        self.tokens.push(Token { kind, text: self.text.get(start..end).unwrap_or(""), span: start..end });
        self.at = end;
    }

    /// All of it, from outside of an action.
    fn outside(&mut self) -> Result<(), UnlocatedFault> {
        let mut trims_start = false;
        loop {
            if trims_start {
                self.at += self.rest().len() - self.rest().trim_start_matches(BLANKS).len();
            }
            let start = self.at;
            let Some(length) = self.rest().find(self.left) else {
                if start < self.text.len() {
                    self.push(TokenKind::Text, start, self.text.len());
                }
                self.push(TokenKind::End, self.text.len(), self.text.len());
                return Ok(());
            };
            let open = start + length;
            let after = open + self.left.len();
            let inside = self.text.get(after..).unwrap_or("");
            let trims_end = inside.starts_with('-') && inside.get(1..).is_some_and(|rest| rest.starts_with(BLANKS));
            let before = self.text.get(start..open).unwrap_or("");
            let retained = if trims_end { before.trim_end_matches(BLANKS).len() } else { before.len() };
            if retained > 0 {
                self.push(TokenKind::Text, start, start + retained);
            }
            let inside_at = if trims_end { after + 2 } else { after };
            self.at = inside_at;
            trims_start = if self.rest().starts_with("/*") {
                self.comment(open)?
            } else {
                self.push(TokenKind::Left, open, after);
                self.at = inside_at;
                self.action(open)?
            };
        }
    }

    /// Returns whether what follows is trimmed.
    fn comment(&mut self, open: usize) -> Result<bool, UnlocatedFault> {
        let Some(end) = self.rest().find("*/") else {
            return self.wrong(open, "the comment has no end; write */");
        };
        self.at += end + 2;
        match self.closes() {
            Some((length, trims)) => {
                self.at += length;
                Ok(trims)
            }
            None => self.wrong(open, format!("a comment ends with */ directly before {}", self.right)),
        }
    }

    /// Whether the right delimiter stands here: its length with the trim marker, and whether it has one.
    fn closes(&self) -> Option<(usize, bool)> {
        let rest = self.rest();
        if rest.starts_with(BLANKS) && rest.get(1..).is_some_and(|rest| rest.starts_with('-')) {
            let marked = rest.get(2..).is_some_and(|rest| rest.starts_with(self.right));
            return marked.then_some((2 + self.right.len(), true));
        }
        rest.starts_with(self.right).then_some((self.right.len(), false))
    }

    fn action(&mut self, open: usize) -> Result<bool, UnlocatedFault> {
        let mut parentheses: Vec<usize> = Vec::new();
        loop {
            let start = self.at;
            if let Some((length, trims)) = self.closes() {
                if let Some(at) = parentheses.last() {
                    return Err(UnlocatedFault::new(*at..at + 1, "this parenthesis is not closed"));
                }
                self.push(TokenKind::Right, start, start + length);
                return Ok(trims);
            }
            let Some(c) = self.rest().chars().next() else {
                return Err(UnlocatedFault::new(
                    open..open + self.left.len(),
                    format!("the action has no {}", self.right),
                ));
            };
            let next = self.rest().chars().nth(1);
            match c {
                ' ' | '\t' | '\r' | '\n' => self.space(),
                '"' => self.quoted(start)?,
                '\'' => self.character(start)?,
                '`' => match self.rest().get(1..).and_then(|rest| rest.find('`')) {
                    Some(length) => self.push(TokenKind::Raw, start, start + length + 2),
                    None => return self.wrong(start, "the raw string has no closing backtick"),
                },
                '|' => self.push(TokenKind::Pipe, start, start + 1),
                ',' => self.push(TokenKind::Comma, start, start + 1),
                '=' => self.push(TokenKind::Assign, start, start + 1),
                ':' if next == Some('=') => self.push(TokenKind::Declare, start, start + 2),
                '(' => {
                    parentheses.push(start);
                    self.push(TokenKind::LeftParenthesis, start, start + 1);
                }
                ')' => {
                    if parentheses.pop().is_none() {
                        return Err(UnlocatedFault::new(start..start + 1, "this parenthesis was not opened"));
                    }
                    self.push(TokenKind::RightParenthesis, start, start + 1);
                }
                '$' => self.word(TokenKind::Variable, start)?,
                '.' if next.is_some_and(is_word) && !next.is_some_and(|c| c.is_ascii_digit()) => {
                    self.word(TokenKind::Field, start)?;
                }
                '.' if !next.is_some_and(|c| c.is_ascii_digit()) => {
                    self.at += 1;
                    self.ends(start)?;
                    self.push(TokenKind::Dot, start, start + 1);
                }
                '+' | '-' | '.' | '0'..='9' => self.number(start)?,
                c if is_word(c) => self.word(TokenKind::Identifier, start)?,
                c => {
                    self.at += c.len_utf8();
                    return self.wrong(start, format!("{c:?} is not expected in an action"));
                }
            }
        }
    }

    fn space(&mut self) {
        let start = self.at;
        // A blank may belong to a trim marker.
        while self.rest().starts_with(BLANKS) && !(self.closes().is_some_and(|(_, trims)| trims)) {
            self.at += 1;
        }
        self.push(TokenKind::Space, start, self.at);
    }

    fn quoted(&mut self, start: usize) -> Result<(), UnlocatedFault> {
        let end = self.until('"');
        match end {
            Some(end) => self.push(TokenKind::Quoted, start, end),
            None => return self.wrong(start, "the string has no closing quote on its line"),
        }
        Ok(())
    }

    fn character(&mut self, start: usize) -> Result<(), UnlocatedFault> {
        match self.until('\'') {
            Some(end) => self.push(TokenKind::Character, start, end),
            None => return self.wrong(start, "the character has no closing quote on its line"),
        }
        Ok(())
    }

    /// Behind the closing quote; `None`: there is none on the line.
    fn until(&self, quote: char) -> Option<usize> {
        let mut escaped = false;
        for (at, c) in self.rest().char_indices().skip(1) {
            match c {
                '\n' => return None,
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                c if c == quote => return Some(self.at + at + 1),
                _ => {}
            }
        }
        None
    }

    fn word(&mut self, kind: TokenKind, start: usize) -> Result<(), UnlocatedFault> {
        let first = self.rest().chars().next().map_or(0, char::len_utf8);
        let rest = self.rest().get(first..).unwrap_or("");
        let length = first + rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        self.at = start + length;
        self.ends(start)?;
        self.push(kind, start, start + length);
        Ok(())
    }

    /// Errors: what follows here cannot follow a word.
    fn ends(&self, start: usize) -> Result<(), UnlocatedFault> {
        match self.rest().chars().next() {
            None | Some(' ' | '\t' | '\r' | '\n' | '.' | ',' | '|' | ':' | '(' | ')') => Ok(()),
            Some(_) if self.rest().starts_with(self.right) => Ok(()),
            Some(c) => self.wrong(start, format!("{c:?} is not expected here")),
        }
    }

    fn number(&mut self, start: usize) -> Result<(), UnlocatedFault> {
        let mut before = None;
        let is_hexadecimal = {
            let digits = self.rest().trim_start_matches(['+', '-']);
            digits.starts_with("0x") || digits.starts_with("0X")
        };
        while let Some(c) = self.rest().chars().next() {
            let is_exponent = match before {
                Some('e' | 'E') => !is_hexadecimal,
                Some('p' | 'P') => is_hexadecimal,
                _ => false,
            };
            match c {
                '+' | '-' if before.is_none() || is_exponent => {}
                '.' => {}
                c if is_word(c) => {}
                _ => break,
            }
            before = Some(c);
            self.at += c.len_utf8();
        }
        self.push(TokenKind::Number, start, self.at);
        Ok(())
    }
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}
