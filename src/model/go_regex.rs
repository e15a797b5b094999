//! Regular expressions in the syntax of Go, which job files are written in, for the crate `regex`.

/// The same expression in the syntax of the crate. What is none in Go's syntax may become one, and the reverse never.
pub fn from_go(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut rest = pattern;
    while let Some(c) = rest.chars().next() {
        let used = match c {
            '\\' => escape(rest, false, &mut out),
            '[' => class(rest, &mut out),
            // Go reads a brace that begins no repetition as itself.
            '{' if !begins_repetition(rest) => literal(c, &mut out),
            _ => plain(c, &mut out),
        };
        rest = rest.get(used..).unwrap_or("");
    }
    out
}

/// `{2}`, `{2,}` or `{2,5}`.
fn begins_repetition(rest: &str) -> bool {
    let Some((inside, _)) = rest.strip_prefix('{').and_then(|rest| rest.split_once('}')) else { return false };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match inside.split_once(',') {
        Some((least, most)) => is_number(least) && (most.is_empty() || is_number(most)),
        None => is_number(inside),
    }
}

/// Each of these takes what it has written of the pattern from its beginning, and yields the number of bytes.
fn plain(c: char, out: &mut String) -> usize {
    out.push(c);
    c.len_utf8()
}

fn literal(c: char, out: &mut String) -> usize {
    out.push('\\');
    plain(c, out)
}

/// Behind a backslash: many characters, so that no range begins with it.
const MANY: [char; 8] = ['d', 'D', 'w', 'W', 's', 'S', 'p', 'P'];

/// Go's classes have ASCII characters alone.
fn escape(rest: &str, in_class: bool, out: &mut String) -> usize {
    let behind = rest.get(1..).unwrap_or("");
    let Some(c) = behind.chars().next() else { return plain('\\', out) };
    let class = match c {
        'd' | 'D' => "0-9",
        'w' | 'W' => "0-9A-Za-z_",
        's' | 'S' => r"\t\n\f\r ",
        'Q' if !in_class => {
            let quoted = behind.get(1..).unwrap_or("");
            let (text, end) = quoted.split_once("\\E").map_or((quoted, 0), |(text, _)| (text, 2));
            out.push_str(&regex::escape(text));
            return 2 + text.len() + end;
        }
        'b' if !in_class => {
            out.push_str(r"(?-u:\b)");
            return 2;
        }
        'p' | 'P' | 'x' => {
            let name = behind.get(1..).unwrap_or("");
            let length = match name.find('}').filter(|_| name.starts_with('{')) {
                Some(end) => end + 1,
                None => name.chars().next().map_or(0, char::len_utf8),
            };
            out.push_str(rest.get(..2 + length).unwrap_or(rest));
            return 2 + length;
        }
        // Elsewhere the beginning and the end of a word.
        '<' | '>' => return 1 + plain(c, out),
        '0'..='7' => return octal(behind, out),
        _ => return literal(c, out) + 1,
    };
    match (c.is_ascii_uppercase(), in_class) {
        (true, _) => out.push_str(&format!("[^{class}]")),
        (false, true) => out.push_str(class),
        (false, false) => out.push_str(&format!("[{class}]")),
    }
    2
}

/// `\012`; a single digit other than 0 refers to a group, which neither of the two knows.
fn octal(behind: &str, out: &mut String) -> usize {
    let digits: String = behind.chars().take(3).take_while(|c| ('0'..='7').contains(c)).collect();
    match u32::from_str_radix(&digits, 8) {
        Ok(number) if digits.len() > 1 || number == 0 => out.push_str(&format!(r"\x{{{number:x}}}")),
        _ => out.push_str(&format!("\\{digits}")),
    }
    1 + digits.len()
}

/// `[...]`: in Go's it has no inner ones but those such as `[:alpha:]`, and no operators.
fn class(rest: &str, out: &mut String) -> usize {
    let mut at = plain('[', out);
    let behind = |at: usize| rest.get(at..).unwrap_or("");
    if behind(at).starts_with('^') {
        at += plain('^', out);
    }
    let mut is_first = true;
    while let Some(c) = behind(at).chars().next() {
        if c == ']' && !is_first {
            return at + plain(c, out);
        }
        is_first = false;
        if let Some((name, _)) = behind(at).strip_prefix("[:").and_then(|rest| rest.split_once(":]")) {
            out.push_str(&format!("[:{name}:]"));
            at += name.len() + 4;
            continue;
        }
        let has_many = behind(at).strip_prefix('\\').is_some_and(|rest| rest.starts_with(MANY));
        at += member(c, behind(at), out);
        let end = behind(at).strip_prefix('-').and_then(|rest| rest.chars().next());
        if let Some(end) = end.filter(|end| *end != ']' && !has_many) {
            at += plain('-', out);
            at += member(end, behind(at), out);
        }
    }
    at
}

/// One of a class, or one end of a range.
fn member(c: char, rest: &str, out: &mut String) -> usize {
    match c {
        '[' | ']' | '&' | '-' | '~' => literal(c, out),
        '\\' => escape(rest, true, out),
        _ => plain(c, out),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What matches alone, and what does not: facts about Go's syntax.
    #[test]
    fn go_expressions_match_what_go_matches() {
        for (pattern, matches, unmatched) in [
            (r"server\s{\s", "server { ", "server "),
            ("a{", "a{", "a"),
            ("a{,2}", "a{,2}", "aa"),
            ("a{x}", "a{x}", "a"),
            ("a{2}", "aa", "a"),
            ("a{2,}", "aaa", "a"),
            ("a{2,3}", "aaa", "aaaa"),
            (r"[[]x", "[x", "x"),
            ("[^[]", "a", "["),
            ("[]a]", "]", "b"),
            ("[^]a]", "b", "]"),
            ("[a&&b]", "&", "c"),
            ("[a~~b]", "~", "c"),
            ("[+--]", ",", "."),
            ("[[:alpha:][]", "[", "1"),
            (r"[\w.-]+", "a_1.-", "é"),
            (r"[^\w]", "é", "a"),
            (r"[\W]", "é", "a"),
            (r"\w", "a", "é"),
            (r"\W", "é", "a"),
            (r"\d", "7", "٣"),
            (r"\D", "٣", "7"),
            (r"\s", "\t", "\u{a0}"),
            (r"\S", "\u{a0}", " "),
            (r"\<a\>", "<a>", "a"),
            (r"\Qa.b\E+", "a.bbb", "axb"),
            (r"\Q[x", "[x", "x"),
            (r"\101\x42\x{43}", "ABC", "abc"),
            (r"\x{4a}[\x{4A}-\x4C]+", "JKL", "j"),
            (r"\.\{\}", ".{}", "x{}"),
            (r"[\pN-x]+", "1-x", "y"),
            (r"\p{Greek}", "α", "a"),
            (r"[\w-z]+", "a-z", "é"),
            ("[--/]", ".", ","),
            ("[a-]", "-", "b"),
            ("[-a]", "-", "b"),
        ] {
            let regex = regex::Regex::new(&format!("^(?:{})$", from_go(pattern)));
            let regex = regex.unwrap_or_else(|error| panic!("{pattern}: {error}"));
            assert!(regex.is_match(matches), "{pattern} {matches}");
            assert!(!regex.is_match(unmatched), "{pattern} {unmatched}");
        }
        let word = regex::Regex::new(&from_go(r"\bab\b")).unwrap();
        assert!(word.is_match("éabé") && !word.is_match("xab"), "the bounds of words are those of ASCII");
        for wrong in [r"\1", "(", "[a", "*", r"(?=a)", "[]", r"a\", "{2}", "[z-a]"] {
            assert!(regex::Regex::new(&from_go(wrong)).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_rewritten_in_bounds(pattern in r"[\[\]{}\\a-z0-9,&~:^QE<>-]{0,40}|\PC{0,40}") {
            let text = from_go(&pattern);
            prop_assert!(text.len() <= 16 * pattern.len().max(1));
        }

        #[test]
        fn a_quoted_text_matches_itself_alone(text in r"[\[\]{}a-z0-9,&~:^<>-]{1,20}") {
            let regex = regex::Regex::new(&format!("^(?:{})$", from_go(&format!(r"\Q{text}\E")))).unwrap();
            prop_assert!(regex.is_match(&text));
        }
    }
}
