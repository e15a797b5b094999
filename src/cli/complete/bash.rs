//! The command line of bash: cut into words here, since bash cuts at `:` and `@` as well, and leaves its quotes.

/// The script. `mapfile` neither expands nor splits what it reads.
pub const SCRIPT: &str = r#"# Completion of allostat for bash 4 and later. The names come from the running agent.
_allostat() {
    mapfile -t COMPREPLY < <(
        COMPLETE=bash _ALLOSTAT_BREAKS="$COMP_WORDBREAKS" allostat -- "${COMP_LINE:0:COMP_POINT}" 2>/dev/null
    )
}
complete -o nospace -F _allostat allostat
"#;

/// The variable with the characters at which bash begins a new word: what it replaces begins behind the last one.
pub const BREAKS: &str = "_ALLOSTAT_BREAKS";

/// A command line up to the cursor.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct BashLine {
    /// Without quotes; the last one is to be completed.
    pub words: Vec<String>,
    /// How much of the last word bash leaves as it is, in bytes.
    unchanged: usize,
    /// The quote that is open.
    quote: Option<char>,
}

impl BashLine {
    pub fn parse(line: &str, breaks: &str) -> BashLine {
        let mut found = BashLine::default();
        let (mut word, mut is_word) = (String::new(), false);
        let mut chars = line.chars();
        while let Some(c) = chars.next() {
            match (found.quote, c) {
                (Some(open), _) if c == open => found.quote = None,
                (None, '\'' | '"') => (found.quote, found.unchanged) = (Some(c), word.len()),
                (None, '\\') => word.extend(chars.next()),
                (Some('"'), '\\') => match chars.next() {
                    Some(next @ ('"' | '\\' | '$' | '`')) => word.push(next),
                    next => word.extend(std::iter::once(c).chain(next)),
                },
                (None, _) if c.is_whitespace() => {
                    if is_word {
                        found.words.push(std::mem::take(&mut word));
                    }
                    (is_word, found.unchanged) = (false, 0);
                    continue;
                }
                (None, _) if breaks.contains(c) => {
                    word.push(c);
                    found.unchanged = word.len();
                }
                _ => word.push(c),
            }
            is_word = true;
        }
        found.words.push(word);
        found
    }

    /// A line for each candidate, as bash inserts it. Options are left out where nothing was typed and there are
    /// others.
    pub fn answer<'a>(&self, values: impl Iterator<Item = &'a str>) -> String {
        let current = self.words.last().map_or("", String::as_str);
        let all: Vec<&str> = values.filter(|value| value.starts_with(current)).collect();
        let is_option = |value: &str| current.is_empty() && value.starts_with('-');
        let has_rest = all.iter().any(|value| !is_option(value));
        let all: Vec<&str> = all.into_iter().filter(|value| !has_rest || !is_option(value)).collect();
        let ends = |value: &str| all.len() == 1 && self.quote.is_none() && !value.ends_with(['/', '=']);
        let shown = |value: &&str| {
            let text = self.inserted(value.get(self.unchanged..)?)?;
            Some(format!("{text}{}\n", if ends(value) { " " } else { "" }))
        };
        all.iter().filter_map(shown).collect()
    }

    /// `None`: it cannot be written as one word of one line.
    fn inserted(&self, text: &str) -> Option<String> {
        if text.chars().any(char::is_control) {
            return None;
        }
        match self.quote {
            Some('\'') => (!text.contains('\'')).then(|| text.to_owned()),
            Some(_) => (!text.contains(['"', '\\', '$', '`', '!'])).then(|| text.to_owned()),
            None => {
                let is_plain = |c: char| c.is_alphanumeric() || "._:/@+,=%-".contains(c);
                Some(text.chars().flat_map(|c| (!is_plain(c)).then_some('\\').into_iter().chain([c])).collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DEFAULT: &str = " \t\n\"'@><=;|&(:";

    fn answered(line: &str, values: &[&str]) -> Vec<String> {
        BashLine::parse(line, DEFAULT).answer(values.iter().copied()).lines().map(str::to_owned).collect()
    }

    #[test]
    fn words_are_cut_as_the_shell_does_and_quotes_are_taken_off() {
        let words = |line: &str| BashLine::parse(line, DEFAULT).words;
        assert_eq!(words("allostat logs "), ["allostat", "logs", ""]);
        assert_eq!(words("allostat  stats docker:we"), ["allostat", "stats", "docker:we"]);
        assert_eq!(words(r"allostat stats web.app\[1\] 'a b' "), ["allostat", "stats", "web.app[1]", "a b", ""]);
        assert_eq!(words(r#"allostat x "a\"b\n" ''"#), ["allostat", "x", "a\"b\\n", ""]);
        assert_eq!(words("allostat x 'web.a"), ["allostat", "x", "web.a"]);
        assert_eq!(words(""), [""]);
    }

    #[test]
    fn candidate_is_quoted_and_begins_where_bash_replaces() {
        assert_eq!(answered("allostat stats web.a", &["web.app[1]"]), [r"web.app\[1\] "]);
        assert_eq!(
            answered(r"allostat stats web.app\[", &["web.app[0]", "web.app[1]"]),
            [r"web.app\[0\]", r"web.app\[1\]"]
        );
        assert_eq!(answered("allostat stats 'web.a", &["web.app[1]"]), ["web.app[1]"]);
        assert_eq!(answered("allostat stats docker:w", &["docker:web"]), ["web "]);
        assert_eq!(answered("allostat stats systemd:pg@1", &["systemd:pg@15.service"]), ["15.service "]);
        assert_eq!(answered("allostat --address=unix:/r", &["--address=unix:/run/"]), ["/run/"]);
        assert_eq!(answered("allostat run ", &["a b;c.hcl"]), [r"a\ b\;c.hcl "]);
        assert_eq!(answered("allostat run ", &["a\nb", "a\u{1b}b"]), [""; 0]);
        assert_eq!(answered("allostat run 'a", &["a'b"]), [""; 0]);
        assert_eq!(answered("allostat stats ", &["web", "--json"]), ["web "]);
        assert_eq!(answered("allostat stats ", &["--json"]), ["--json "]);
    }

    proptest! {
        #[test]
        fn any_line_is_answered_and_what_is_inserted_reads_back_as_the_value(line in "[ -~]{0,40}", value in "[ -~]{1,20}") {
            let parsed = BashLine::parse(&line, DEFAULT);
            let _ = parsed.answer([value.as_str()].into_iter());
            let answer = BashLine::parse("allostat x ", DEFAULT).answer([value.as_str()].into_iter());
            let typed = format!("allostat x {}", answer.trim_end_matches('\n').strip_suffix(' ').unwrap_or(answer.trim_end_matches('\n')));
            prop_assert_eq!(BashLine::parse(&typed, DEFAULT).words.pop(), Some(value));
        }
    }
}
