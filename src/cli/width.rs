//! How wide text is on a terminal, and what is left of it where there is less room.

use ratatui::text::Span;

/// How many columns it takes.
pub fn columns_of(text: &str) -> u16 {
    let width = if text.is_ascii() { text.len() } else { Span::raw(text).width() };
    u16::try_from(width).unwrap_or(u16::MAX)
}

/// Its beginning and its end: of a path the end says most, of a name the beginning.
pub fn shortened(text: &str, width: u16) -> String {
    if columns_of(text) <= width {
        return text.to_owned();
    }
    let room = width.saturating_sub(1);
    let tail_room = room / 2;
    let mut tail: Vec<char> = Vec::new();
    let mut taken = 0;
    for c in text.chars().rev() {
        let wide = columns_of(c.encode_utf8(&mut [0; 4]));
        if taken + wide > tail_room {
            break;
        }
        taken += wide;
        tail.push(c);
    }
    let mut short = String::new();
    let mut used = 0;
    for c in text.chars() {
        let wide = columns_of(c.encode_utf8(&mut [0; 4]));
        if used + wide > room - taken {
            break;
        }
        used += wide;
        short.push(c);
    }
    short.push('…');
    short.extend(tail.iter().rev());
    short
}

/// Its beginning, with a mark where more would follow.
pub fn cut_end(text: &str, width: u16) -> String {
    if columns_of(text) <= width {
        return text.to_owned();
    }
    let (mut retained, mut used) = (String::new(), 0);
    for c in text.chars() {
        let wide = columns_of(c.encode_utf8(&mut [0; 4]));
        if used + wide > width.saturating_sub(1) {
            break;
        }
        used += wide;
        retained.push(c);
    }
    retained.truncate(retained.trim_end().len());
    retained.push('…');
    retained
}

/// The least that is left for text beside an indent.
const LEAST_ROOM: u16 = 20;

/// One line as several of at most `width` columns, broken between words where that is possible; those after the first
/// begin with `indent` blanks. Colours take no room. `None`: as it is.
pub fn wrapped(line: &str, width: Option<u16>, indent: u16) -> String {
    let Some(width) = width.filter(|width| visible(line) > *width) else { return line.to_owned() };
    let indent = if width >= indent.saturating_add(LEAST_ROOM) { indent } else { 0 };
    let margin = format!("\n{}", " ".repeat(usize::from(indent)));
    let (mut out, mut used) = (String::new(), 0_u16);
    for (at, word) in line.split(' ').enumerate() {
        // A list without blanks is broken behind its commas.
        let is_long = visible(word) > width.saturating_sub(indent);
        let mut parts = word.split_inclusive(if is_long { ',' } else { '\0' }).peekable();
        let first = parts.peek().map_or(0, |part| visible(part));
        if at > 0 && used.saturating_add(1).saturating_add(first) > width {
            out.truncate(out.trim_end().len());
            out.push_str(&margin);
            used = indent;
        } else if at > 0 {
            out.push(' ');
            used += 1;
        }
        for (at, part) in parts.enumerate() {
            if at > 0 && used.saturating_add(visible(part)) > width {
                out.push_str(&margin);
                used = indent;
            }
            used = broken(&mut out, part, (used, indent, width), &margin);
        }
    }
    out
}

/// Appends a word, broken where it is wider than a line; gives the column that it ends in.
fn broken(out: &mut String, word: &str, (mut used, indent, width): (u16, u16, u16), margin: &str) -> u16 {
    let mut is_colour = false;
    for c in word.chars() {
        is_colour |= c == '\u{1b}';
        let wide = if is_colour { 0 } else { columns_of(c.encode_utf8(&mut [0; 4])) };
        if used.saturating_add(wide) > width {
            out.push_str(margin);
            used = indent;
        }
        is_colour &= c != 'm';
        used = used.saturating_add(wide);
        out.push(c);
    }
    used
}

/// Columns of a text with colours.
fn visible(text: &str) -> u16 {
    if !text.contains('\u{1b}') {
        return columns_of(text);
    }
    let parts = text.split('\u{1b}').enumerate();
    let shown = |(at, part): (usize, &str)| match (at, part.split_once('m')) {
        (0, _) => columns_of(part),
        (_, rest) => columns_of(rest.map_or("", |(_, rest)| rest)),
    };
    parts.map(shown).fold(0, u16::saturating_add)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn line_is_broken_between_words_with_its_colours() {
        assert_eq!(wrapped("one two three", None, 2), "one two three");
        assert_eq!(wrapped("one two three four five six", Some(24), 2), "one two three four five\n  six");
        assert_eq!(wrapped("\u{1b}[31mone\u{1b}[0m two", Some(7), 0), "\u{1b}[31mone\u{1b}[0m two");
        assert_eq!(wrapped("aaaabbbbcc", Some(4), 2), "aaaa\nbbbb\ncc", "no room for an indent");
        assert_eq!(
            wrapped("names  aa,bbb,cccc,ddddd,eeeeee,ffff", Some(24), 2),
            "names  aa,bbb,cccc,\n  ddddd,eeeeee,ffff"
        );
        assert_eq!(cut_end("exit 3, restarts", 8), "exit 3,…");
        assert_eq!(cut_end("exit 3", 6), "exit 3");
    }

    proptest! {
        #[test]
        fn no_line_is_wider_than_its_screen_and_no_word_is_lost(
            words in prop::collection::vec("[a-zü]{1,30}", 1..20), width in 1..90_u16, indent in 0..12_u16,
        ) {
            let text = wrapped(&words.join(" "), Some(width), indent);
            prop_assert!(text.lines().all(|line| columns_of(line) <= width), "{text}");
            let letters = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
            prop_assert_eq!(letters(&text), letters(&words.join("")));
        }
    }
}
