//! Lines of `NAME=value`, as a template with `env = true` renders them.
//!
//! Source: the format of hashicorp/go-envparse: comments with `#`, an optional `export`, double quotes with escapes,
//! single quotes without.

/// The variables in order. Errors: the number of the first line that is none, and why.
pub fn variables(text: &str) -> Result<Vec<(String, String)>, (usize, String)> {
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |why: &str| (at + 1, why.to_owned());
        let line = line.strip_prefix("export ").map_or(line, str::trim_start);
        let (name, value) = line.split_once('=').ok_or_else(|| wrong("it has no `=`"))?;
        let name = name.trim();
        let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if !starts || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.') {
            return Err(wrong("its name is no name of a variable"));
        }
        found.push((name.to_owned(), unquoted(value.trim()).map_err(|why| wrong(&why))?));
    }
    Ok(found)
}

/// A value may be quoted in parts: `a"b c"'d'`.
fn unquoted(value: &str) -> Result<String, String> {
    let mut text = String::with_capacity(value.len());
    let mut chars = value.chars();
    let mut last_is_blank = true;
    while let Some(c) = chars.next() {
        match c {
            '\'' => loop {
                match chars.next() {
                    Some('\'') => break,
                    Some(c) => text.push(c),
                    None => return Err("a single quote is not closed".to_owned()),
                }
            },
            '"' => double_quoted(&mut chars, &mut text)?,
            '#' if last_is_blank => {
                text.truncate(text.trim_end().len());
                return Ok(text);
            }
            c => text.push(c),
        }
        last_is_blank = c.is_whitespace();
    }
    Ok(text)
}

fn double_quoted(chars: &mut std::str::Chars<'_>, text: &mut String) -> Result<(), String> {
    loop {
        match chars.next() {
            Some('"') => return Ok(()),
            Some('\\') => match chars.next() {
                Some('n') => text.push('\n'),
                Some('r') => text.push('\r'),
                Some('t') => text.push('\t'),
                Some('u') => {
                    let digits: String = chars.by_ref().take(4).collect();
                    let code = u32::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 4);
                    text.push(code.and_then(char::from_u32).ok_or("`\\u` takes four hexadecimal digits")?);
                }
                Some(c @ ('"' | '\\' | '\'' | '$' | '`' | '/')) => text.push(c),
                Some(c) => return Err(format!("`\\{c}` is no escape")),
                None => return Err("a double quote is not closed".to_owned()),
            },
            Some(c) => text.push(c),
            None => return Err("a double quote is not closed".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_become_variables() {
        let text = "# comment\n\nA=1\n export B = two words # why\nC=\"x\\n\\\"y\\\" \\u0041\"\nD='as $is\\n'\nE=a\"b c\"'d'\nF=\nG=a#b\n";
        let expected = [
            ("A", "1"),
            ("B", "two words"),
            ("C", "x\n\"y\" A"),
            ("D", "as $is\\n"),
            ("E", "ab cd"),
            ("F", ""),
            ("G", "a#b"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(variables(text).unwrap(), expected);
    }

    #[test]
    fn a_line_that_is_none_is_named() {
        for (text, line, why) in [
            ("A=1\nwords", 2, "it has no `=`"),
            ("1A=1", 1, "its name is no name of a variable"),
            ("A=\"x", 1, "a double quote is not closed"),
            ("A='x", 1, "a single quote is not closed"),
            ("A=\"\\q\"", 1, "`\\q` is no escape"),
            ("A=\"\\u12\"", 1, "`\\u` takes four hexadecimal digits"),
        ] {
            assert_eq!(variables(text).unwrap_err(), (line, why.to_owned()), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[A-C=\"'#\\\\u0-9 \n$]{0,60}") {
            let _ = variables(&text);
        }
    }
}
