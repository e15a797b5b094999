//! Text in its place on the screen, with or without colour.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style as Appearance};
use ratatui::text::Span;

use crate::cli::output::Style;

/// Writes text, and never beyond its place.
pub struct Pen<'a> {
    buffer: &'a mut Buffer,
    colour: bool,
}

impl<'a> Pen<'a> {
    pub fn new(buffer: &'a mut Buffer, colour: bool) -> Pen<'a> {
        Pen { buffer, colour }
    }
    /// Gives where the text ends.
    pub fn text(&mut self, x: u16, y: u16, width: u16, text: &str, style: Style) -> u16 {
        let look = self.look(style);
        self.buffer.set_stringn(x, y, text, usize::from(width), look).0
    }
    pub fn right(&mut self, x: u16, y: u16, width: u16, text: &str, style: Style) {
        let from = width.saturating_sub(columns_of(text));
        self.text(x + from, y, width - from, text, style);
    }
    pub fn mark(&mut self, area: Rect, modifier: Modifier) {
        self.buffer.set_style(area, Appearance::new().add_modifier(modifier));
    }
    pub fn buffer(&mut self) -> &mut Buffer {
        self.buffer
    }
    /// Without colour what would be red is bold.
    pub fn look(&self, style: Style) -> Appearance {
        let plain = Appearance::new();
        match (style, self.colour) {
            (Style::Plain, _) => plain,
            (Style::Bold, _) | (Style::Red, false) => plain.add_modifier(Modifier::BOLD),
            (_, false) => plain,
            (Style::Dim, true) => plain.add_modifier(Modifier::DIM),
            (Style::Red, true) => plain.fg(Color::Red),
            (Style::Green, true) => plain.fg(Color::Green),
            (Style::Yellow, true) => plain.fg(Color::Yellow),
            (Style::Cyan, true) => plain.fg(Color::Cyan),
        }
    }
}

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
