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
