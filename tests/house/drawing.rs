//! Reads the drawing in the header of `src/lib.rs`.

use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Floor {
    Number(u8),
    /// `|`: open to floors 1 to 6, itself standing on floor 0.
    Staircase,
}

impl Floor {
    pub fn may_use(self, other: &Floor) -> bool {
        match (self, other) {
            // The top floor puts the house together.
            (Floor::Number(6), _) => true,
            (Floor::Number(own), Floor::Number(other)) => *other < own,
            (Floor::Number(own), Floor::Staircase) => own >= 1,
            (Floor::Staircase, Floor::Number(other)) => *other == 0,
            (Floor::Staircase, Floor::Staircase) => true,
        }
    }
}

pub fn drawing() -> BTreeMap<String, Floor> {
    read(&std::fs::read_to_string("src/lib.rs").expect("src/lib.rs must be there"))
}

/// `6  main lib       words`: floor, rooms, what they are for. A room indented further belongs to the one above it.
fn read(text: &str) -> BTreeMap<String, Floor> {
    let inside = text.lines().skip_while(|line| *line != "//! ```text").skip(1).take_while(|line| *line != "//! ```");
    let mut modules = BTreeMap::new();
    let mut floor = None;
    for line in inside {
        let line = line.strip_prefix("//! ").unwrap_or("");
        match line.chars().next() {
            Some('|') => floor = Some(Floor::Staircase),
            Some(digit) if digit.is_ascii_digit() => {
                floor = digit.to_digit(10).and_then(|d| u8::try_from(d).ok()).map(Floor::Number);
            }
            _ => {}
        }
        let names = line.get(3..).unwrap_or("");
        if names.starts_with(' ') {
            continue;
        }
        for name in names.split("  ").next().unwrap_or("").split(' ').filter(|name| !name.is_empty()) {
            let floor = floor.expect("the first line of the drawing must name its floor");
            modules.insert(name.trim_end_matches('/').to_owned(), floor);
        }
    }
    modules
}

#[test]
fn the_drawing_reads_as_people_read_it() {
    let modules = read(
        "//! ```text\n//! 6  main lib       parse\n//!    cli/           commands\n//! 3  runner/        board\n\
         //!      drivers/     how\n//! |  telemetry/     logs\n//! ```\n",
    );
    let expected = [("cli", Floor::Number(6)), ("lib", Floor::Number(6)), ("main", Floor::Number(6))];
    let expected = expected.into_iter().chain([("runner", Floor::Number(3)), ("telemetry", Floor::Staircase)]);
    assert_eq!(modules, expected.map(|(name, floor)| (name.to_owned(), floor)).collect());
}

#[test]
fn no_room_uses_one_above_or_beside_it() {
    assert!(Floor::Number(4).may_use(&Floor::Number(3)));
    assert!(!Floor::Number(3).may_use(&Floor::Number(4)));
    assert!(!Floor::Number(3).may_use(&Floor::Number(3)));
    assert!(!Floor::Number(0).may_use(&Floor::Staircase));
    assert!(Floor::Number(1).may_use(&Floor::Staircase));
    assert!(!Floor::Staircase.may_use(&Floor::Number(1)));
}
