//! Where a text was begun that has no end quote: a parser notices it only where what follows makes no sense.
//!
//! It searches only once the syntax is known to be broken, line by line: in both languages a text ends on its line.

use super::diagnostic::Span;

/// The text that was not closed, from its opening quote to where the parser stopped or its line ends.
pub(super) fn find(text: &str, error: usize, hcl: bool) -> Option<Span> {
    let mut start = 0;
    let mut heredoc: Option<&str> = None;
    for line in text.split_inclusive('\n') {
        let end = start + line.len();
        if start > error {
            return None;
        }
        match heredoc {
            Some(word) if line.trim() == word => heredoc = None,
            Some(_) => {}
            None => {
                let scan = scan(line, hcl);
                if let Some(open) = scan.open {
                    // An odd quote: where the parser stopped right behind a text of this line, that one swallowed the
                    // next.
                    let guilty = scan.closed.iter().rev().find(|s| start + s.end == error).map_or(open, |s| s.start);
                    let last = if guilty == open { start + line.trim_end().len() } else { error };
                    return Some(start + guilty..last.max(start + guilty + 1));
                }
                heredoc = scan.heredoc;
            }
        }
        start = end;
    }
    None
}

/// What of HCL is open where the parser stopped: a heredoc without its end, or the last bracket without its own.
pub(super) enum UnclosedDelimiter<'t> {
    Heredoc(Span, &'t str),
    Bracket(Span, char),
}

/// Of what was opened before `error`, on an earlier line.
pub(super) fn find_open(text: &str, error: usize) -> Option<UnclosedDelimiter<'_>> {
    let mut start = 0;
    let mut heredoc: Option<(Span, &str)> = None;
    let mut brackets: Vec<(usize, char)> = Vec::new();
    for line in text.split_inclusive('\n') {
        if heredoc.is_none() && start > error {
            break;
        }
        match &heredoc {
            Some((_, word)) if line.trim() == *word => heredoc = None,
            Some(_) => {}
            None => {
                let scan = scan(line, true);
                for (at, bracket) in scan.brackets.iter().filter(|(at, _)| start + at < error) {
                    match bracket {
                        '{' | '[' => brackets.push((start + at, *bracket)),
                        _ => drop(brackets.pop()),
                    }
                }
                heredoc = scan.heredoc.map(|word| {
                    let begin = line.find("<<").unwrap_or(0);
                    (start + begin..start + line.trim_end().len(), word)
                });
            }
        }
        start += line.len();
    }
    if let Some((span, word)) = heredoc {
        return Some(UnclosedDelimiter::Heredoc(span, word));
    }
    let (at, bracket) = *brackets.last()?;
    let stops_later = text.get(at..).is_some_and(|rest| rest.find('\n').is_some_and(|end| at + end <= error));
    stops_later.then_some(UnclosedDelimiter::Bracket(at..at + 1, bracket))
}

/// Whether the place stands in a stanza that was begun on the same line.
pub(super) fn in_one_line_stanza(text: &str, at: usize) -> bool {
    let line = text.get(..at).map_or("", |before| before.rsplit('\n').next().unwrap_or(before));
    scan(line, true).braces.last().is_some_and(|brace| {
        // `env = { ... }` is an object, and may hold several.
        !line.get(..*brace).unwrap_or("").trim_end().ends_with(['=', ':'])
    })
}

struct Scan<'a> {
    /// Texts that end on the line, quotes included.
    closed: Vec<Span>,
    /// The opening quote of one that does not.
    open: Option<usize>,
    /// Braces that are open at the line's end.
    braces: Vec<usize>,
    /// All brackets outside of texts and comments.
    brackets: Vec<(usize, char)>,
    /// The word that ends a heredoc begun here.
    heredoc: Option<&'a str>,
}

fn scan(line: &str, hcl: bool) -> Scan<'_> {
    let mut found = Scan { closed: Vec::new(), open: None, braces: Vec::new(), brackets: Vec::new(), heredoc: None };
    let bytes = line.as_bytes();
    let at = |i: usize| bytes.get(i).copied();
    let mut i = 0;
    while let Some(byte) = at(i) {
        if matches!(byte, b'{' | b'}' | b'[' | b']') {
            found.brackets.push((i, char::from(byte)));
        }
        match byte {
            b'"' => match end_of_text(bytes, i, hcl) {
                Some(end) => {
                    found.closed.push(i..end);
                    i = end;
                    continue;
                }
                None => {
                    found.open = Some(i);
                    return found;
                }
            },
            b'#' if hcl => return found,
            b'/' if hcl && at(i + 1) == Some(b'/') => return found,
            b'<' if hcl && at(i + 1) == Some(b'<') => {
                let word = line.get(i + 2..).unwrap_or("").trim_start_matches('-').trim();
                found.heredoc = (!word.is_empty()).then_some(word);
                return found;
            }
            b'{' => found.braces.push(i),
            b'}' => drop(found.braces.pop()),
            _ => {}
        }
        i += 1;
    }
    found
}

/// Behind the closing quote. In HCL a `${...}` may hold texts of its own.
fn end_of_text(bytes: &[u8], open: usize, hcl: bool) -> Option<usize> {
    let mut i = open + 1;
    let mut depth = 0_usize;
    while let Some(byte) = bytes.get(i) {
        match byte {
            b'\\' => i += 1,
            b'"' if depth == 0 => return Some(i + 1),
            b'{' if hcl && (depth > 0 || bytes.get(i.wrapping_sub(1)) == Some(&b'$')) => depth += 1,
            b'}' if depth > 0 => depth -= 1,
            _ => {}
        }
        i += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn found<'a>(text: &'a str, error_at: &str, hcl: bool) -> Option<&'a str> {
        let error = text.find(error_at).expect("must be there");
        find(text, error, hcl).map(|span| &text[span])
    }

    #[test]
    fn the_text_without_an_end_is_found_before_the_place_that_makes_no_sense() {
        assert_eq!(found("job \"x\" {\n  type = \"batch\n  group \"g\" {\n", "g\" {", true), Some("\"batch"));
        assert_eq!(found("{\"a\": \"batch, \"group\": 1}\n", "group", false), Some("\"batch, \""));
        assert_eq!(found("{\n \"a\": \"b,\n \"c\": 1}", "c\"", false), Some("\"b,"));
    }

    #[test]
    fn whole_texts_comments_and_heredocs_are_not_suspected() {
        for text in ["a = \"b \\\" c\" d\n", "# it's \"\na d\n", "a = <<-E\n \"\nE\nb d\n", "a = \"${env[\"b\"]}\" d\n"]
        {
            assert_eq!(found(text, "d\n", true), None, "{text}");
        }
    }

    #[test]
    fn stanza_in_one_line_is_distinguished_from_an_object() {
        let at = |text: &str| in_one_line_stanza(text, text.find('!').expect("marked"));
        assert!(at("job \"x\" { group ! ") && at("a {\n b { c = \"}\" !"));
        assert!(!at("env = { a = 1 !") && !at("a {\n b = !") && !at("a { b = 1 } !"));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[a\"{}$\\\\<#/\nä-]{0,60}", at in 0usize..80, hcl: bool) {
            if let Some(span) = find(&text, at, hcl) {
                prop_assert!(span.start < span.end);
            }
            let _ = in_one_line_stanza(&text, at);
        }
    }
}
