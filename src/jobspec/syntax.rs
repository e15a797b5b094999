//! Advice for text that is no HCL: what people who know other languages write, and what the same means here.

use super::diagnostic::Span;
use super::unclosed;

/// What follows `%{` in HCL.
const DIRECTIVES: [&str; 5] = ["if", "else", "endif", "for", "endfor"];

/// What is probably meant at `offset`, where the parser stopped.
pub(super) fn advice(text: &str, offset: usize) -> Option<String> {
    let line = text.get(..offset).map_or("", |before| before.rsplit('\n').next().unwrap_or(before));
    let rest = text.get(offset..).unwrap_or("");
    let (ahead, more) = rest.split_once('\n').unwrap_or((rest, ""));
    let ahead = if more.is_empty() { ahead } else { ahead.strip_suffix('\r').unwrap_or(ahead) };
    let whole = format!("{line}{ahead}");
    let advice = if line.contains('\r') || ahead.contains('\r') {
        "lines end with a carriage return alone: save the file with Unix line ends"
    } else if let Some(template) = unrendered(&whole) {
        template
    } else if in_interpolation(line) {
        "for a `${...}` of the shell write `$${...}`"
    } else if has_foreign_percent(rest) && (line.contains("<<") || ahead.contains("<<") || whole.contains("%{")) {
        "`%{` begins a directive of HCL: for the two characters themselves write `%%{`"
    } else if rest.starts_with(':') && line.contains('=') {
        "write the text in quotes"
    } else if rest.starts_with(':') {
        "write `key = value`"
    } else if line.trim_end().ends_with('{') && rest.starts_with('"') {
        "a key stands without quotes in a stanza: for such a key write `NAME = { \"key\" = ... }`"
    } else if line.trim_start().is_empty() && rest.starts_with('"') {
        "a key stands without quotes: `key = value`"
    } else if rest.starts_with(',') {
        "in a stanza each `key = value` stands on its own line, without a comma"
    } else if rest.starts_with('\'') {
        "texts stand in double quotes"
    } else if unclosed::in_one_line_stanza(text, offset) {
        "a stanza in one line holds one `key = value` at most: put each of its parts on a line of its own"
    } else {
        return None;
    };
    Some(advice.to_owned())
}

/// What a shell or `date` has in a text and HCL reads as its own, up to where the parser stopped, or in the heredoc
/// that begins there: its place and what is wrong with it.
pub(super) fn foreign(text: &str, offset: usize, message: &str) -> Option<(Span, &'static str)> {
    let before = text.get(..offset)?;
    let is_own = |at: &usize| !text.get(..*at).is_some_and(|before| before.ends_with('$'));
    // Behind `#` the rest of the line is a comment, its closing brace as well.
    if let Some((at, _)) = before.match_indices("${#").find(|(at, _)| is_own(at)) {
        let length = text.get(at..)?.find(['}', '\n']).map_or(3, |end| end + 1);
        return Some((at..at + length, "`#` begins a comment of HCL inside of a `${...}`"));
    }
    if let Some(at) = text.get(offset..).filter(|_| message == "expected `{`").and_then(template_in_label) {
        let at = offset + at;
        let length = text.get(at..)?.find(['}', '"', '\n']).map_or(2, |end| end + 1);
        return Some((at..at + length, "the name of a stanza is a plain text, in which nothing is evaluated"));
    }
    let heredoc = text.get(offset..).filter(|_| message.contains("heredoc end delimiter"))?;
    let at = offset + foreign_percent(heredoc)?;
    let length = text.get(at..)?.find(['}', '\n']).map_or(2, |end| end + 1);
    Some((at..at + length, "`%{` begins a directive of HCL, and this is none"))
}

/// Where a `${` stands in the label that begins a text.
fn template_in_label(text: &str) -> Option<usize> {
    let label = text.strip_prefix('"')?.split(['"', '\n']).next()?;
    let found = label.match_indices("${").find(|(at, _)| !label[..*at].ends_with('$'));
    found.map(|(at, _)| at + 1)
}

/// A file that another program is to render first.
fn unrendered(line: &str) -> Option<&'static str> {
    let starts_value = |marker: &str| line.split_once(marker).is_some_and(|(before, _)| !before.contains('"'));
    if starts_value("[[") && line.contains("]]") {
        Some("`[[ ... ]]` belongs to a template of Nomad Pack or Levant: render it first")
    } else if starts_value("{{") {
        Some("`{{ ... }}` belongs to a template: render it first")
    } else {
        None
    }
}

/// A `${` is open: HCL reads an expression there.
fn in_interpolation(line: &str) -> bool {
    line.rfind("${").is_some_and(|open| !line[open..].contains('}') && !line[..open].ends_with('$'))
}

fn has_foreign_percent(text: &str) -> bool {
    foreign_percent(text).is_some()
}

/// Where the first `%{` stands that begins no directive.
fn foreign_percent(text: &str) -> Option<usize> {
    let found = text.match_indices("%{").find(|(at, _)| {
        let word = text[at + 2..].trim_start_matches(['~', ' ']);
        let word: String = word.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        !text[..*at].ends_with('%') && !DIRECTIVES.contains(&word.as_str())
    });
    found.map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_syntax_in_templates_is_found_at_its_place() {
        let heredoc = "expected heredoc end delimiter";
        for (text, stop, message, expected) in [
            ("a = <<E\nx\n${#arr[@]}\nE\nb = 1", "b =", "expected `}`", Some("${#arr[@]}")),
            ("a = \"${#x}\"\nb = 1", "b =", "", Some("${#x}")),
            ("a = <<E\nx $${#arr[@]}\nE\nb = 1", "b =", "expected `}`", None),
            ("a = <<E\nx\ncurl %{http_code}\nE\n", "x", heredoc, Some("%{http_code}")),
            ("a = <<E\nx\n%{iffy}\nE\n", "x", heredoc, Some("%{iffy}")),
            ("a = <<E\nx %%{http_code} %{ if a }b%{ endif }\nE\n", "x", heredoc, None),
            ("a = <<E\nx %{http_code}\nE\n", "x", "expected `}`", None),
            ("job \"a-${X}\" {\n}", "\"a", "expected `{`", Some("${X}")),
            ("job \"${X}\" {\n}", "\"$", "expected `{`", Some("${X}")),
            ("job \"a-$${X}\" b {\n}", "\"a", "expected `{`", None),
            ("job \"a\" \"b\" c", "\"b", "expected `{`", None),
        ] {
            let found = foreign(text, text.find(stop).unwrap(), message);
            assert_eq!(found.map(|(span, _)| &text[span]), expected, "{text}");
        }
    }

    #[test]
    fn shells_and_renderers_are_recognised() {
        let shell = "for a `${...}` of the shell write `$${...}`";
        let percent = "`%{` begins a directive of HCL: for the two characters themselves write `%%{`";
        for (text, at, expected) in [
            ("a = \"${TAG:-latest}\"", ":-", Some(shell)),
            ("a = <<E\ncurl -w \"%{http_code}\"\nE", "<<", Some(percent)),
            ("a = <<E\n%{ if x }b%{ endif }\nE", "<<", None),
            ("a = <<E\n100%%{b}\nE", "<<", None),
            (
                "job [[ .name | quote ]] {",
                "[[",
                Some("`[[ ... ]]` belongs to a template of Nomad Pack or Levant: render it first"),
            ),
            ("count = {{ count }}", "{{", Some("`{{ ... }}` belongs to a template: render it first")),
            ("a: 1", ":", Some("write `key = value`")),
            ("image = redis:3.2", ":", Some("write the text in quotes")),
            (
                "labels { \"foo\" = 1 }",
                "\"foo",
                Some("a key stands without quotes in a stanza: for such a key write `NAME = { \"key\" = ... }`"),
            ),
        ] {
            assert_eq!(advice(text, text.find(at).unwrap()).as_deref(), expected, "{text}");
        }
    }
}
