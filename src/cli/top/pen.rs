//! Text in its place on the screen, with or without colour.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style as Appearance};

use crate::cli::output::Style;
use crate::cli::width::columns_of;

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
        let appearance = self.appearance(style);
        self.buffer.set_stringn(x, y, text, usize::from(width), appearance).0
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
    pub fn appearance(&self, style: Style) -> Appearance {
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
