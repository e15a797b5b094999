//! Text of others, before it is shown.

/// Whether a terminal is steered by this character instead of showing it: control characters, and those that turn the direction of
/// the text around, so that a name can pass for another one, or hide what stands beside it.
///
/// Source: Unicode 16, UAX #9, "Explicit Directional" formatting characters.
pub fn steers_a_terminal(c: char) -> bool {
    let turns_direction =
        matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || turns_direction
}
