//! Pictures: `cargo xtask pictures` draws one of each board; docs/boards.md shows them.
//!
//! Promise (Code, boards and alerts): Each board has a picture of its present JSON, on a page that names what is
//! Grafana's drawing and what is not

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::Value;

use crate::boards::files::{Board, boards, in_folder, list, read, root, text};

/// As xtask/pictures/page.tsx lays a board out, in pixels.
const WIDTH: u64 = 1600;
const HEAD: u64 = 56;
const CELL: u64 = 38;
/// What a page with a picture of each may weigh.
const LARGEST: usize = 250 * 1024;

/// Of a PNG, as its header has them.
fn width_and_height(png: &[u8]) -> (u64, u64) {
    assert!(png.starts_with(b"\x89PNG\r\n\x1a\n"), "no PNG");
    let number = |at: usize| png[at..at + 4].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    (number(16), number(20))
}

/// How high its picture is, every row open.
fn height(board: &Board) -> u64 {
    let open = |panel: &Value| [vec![panel.clone()], list(&panel["panels"]).to_vec()].concat();
    let panels = list(&board.json["panels"]).iter().flat_map(open);
    let bottoms =
        panels.map(|p| p["gridPos"]["y"].as_u64().expect("a place") + p["gridPos"]["h"].as_u64().expect("a height"));
    HEAD + CELL * bottoms.max().expect("a board has panels")
}

#[test]
fn every_board_has_its_picture_and_its_text_on_the_page_of_boards() {
    let page = read(&root().join("docs/boards.md"));
    for board in boards() {
        let (stem, title) = (&board.stem, text(&board.json, "title"));
        assert!(page.contains(&format!("](../dashboards/{stem}.json)")), "docs/boards.md: no link to {stem}");
        let picture = format!("boards/{stem}.png");
        assert!(page.contains(&format!("]({picture})")), "docs/boards.md: no picture of {title}");
        let png = std::fs::read(root().join("docs").join(&picture)).unwrap_or_else(|e| panic!("{picture}: {e}"));
        assert!(png.len() <= LARGEST, "{picture}: {} bytes", png.len());
        let drawn = "it was drawn before the board got its present rows: cargo xtask pictures";
        assert_eq!(width_and_height(&png), (WIDTH, height(&board)), "{picture}: {drawn}");
    }
}

/// The hash of the board that each picture shows, as `sha256sum` writes it: `xtask/pictures/draw.mjs` writes it beside
/// the picture.
const DRAWN: &str = "docs/boards/drawn.sha256";

/// Equal in width and height it may still show panels that the board has no more.
#[test]
fn every_picture_is_of_the_present_json_of_its_board() {
    let drawn = read(&root().join(DRAWN));
    let (boards, mut old) = (boards(), Vec::new());
    for board in &boards {
        let digest = ring::digest::digest(&ring::digest::SHA256, board.text.as_bytes());
        let digest: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let line = format!("{digest}  ../../dashboards/{}.json", board.stem);
        if !drawn.lines().any(|one| one == line) {
            old.push(format!("docs/boards/{}.png is older than its board", board.stem));
        }
    }
    assert!(old.is_empty(), "{}; `cargo xtask pictures` draws all again", old.join("; "));
    assert_eq!(drawn.lines().count(), boards.len(), "{DRAWN} has a line of a board that is gone");
}

#[test]
fn every_picture_is_shown_and_every_one_that_is_shown_is_there() {
    let mut shown = BTreeSet::new();
    for path in [in_folder("docs", "md"), vec![root().join("README.md")]].concat() {
        let folder = path.parent().expect("it lies in a folder");
        let page = read(&path);
        for link in
            page.split("![").skip(1).filter_map(|rest| rest.split_once("](")?.1.split_once(')')).map(|(link, _)| link)
        {
            let picture = folder.join(link);
            assert!(picture.exists(), "{}: {link} is not there", path.display());
            shown.insert(picture);
        }
    }
    let stored: BTreeSet<PathBuf> =
        [in_folder("docs", "png"), in_folder("docs/boards", "png")].concat().into_iter().collect();
    assert_eq!(stored, shown, "every picture is shown somewhere");
}
