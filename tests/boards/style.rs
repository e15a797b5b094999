//! How boards look: the same thing the same way everywhere. What is asked here was seen in pictures
//! (`cargo xtask pictures`).
//!
//! Promise (Code, boards and alerts): A limit, a peak, an outcome look the same on every board, and tasks differ by
//! colour; an empty cell is a dash

use serde_json::{Value, json};

use crate::boards::files::{boards, list, text};

/// What the overrides of a panel set for a series of this name, the last one winning, as Grafana reads them.
pub fn set(panel: &Value, series: &str, property: &str) -> Value {
    let matches = |rule: &&Value| {
        let options = rule["matcher"]["options"].as_str().unwrap_or("");
        match text(&rule["matcher"], "id") {
            "byName" => options == series,
            "byRegexp" => regex::Regex::new(&format!("^(?:{options})$")).expect("it is one").is_match(series),
            _ => false,
        }
    };
    let rules = list(&panel["fieldConfig"]["overrides"]).iter().filter(matches);
    let found = rules.flat_map(|rule| list(&rule["properties"])).rfind(|p| p["id"] == property);
    found.map_or(Value::Null, |p| p["value"].clone())
}

/// The series of a panel by their legends, each label being `x`.
fn series(panel: &Value) -> Vec<String> {
    let plain = regex::Regex::new(r"\{\{\w+\}\}").expect("it is one");
    list(&panel["targets"]).iter().map(|t| plain.replace_all(text(t, "legendFormat"), "x").into_owned()).collect()
}

/// Whether the lines of a graph are those of several tasks. How tasks end has colours of its own.
fn is_by_task(panel: &Value) -> bool {
    let has = |label: &str| list(&panel["targets"]).iter().any(|target| text(target, "legendFormat").contains(label));
    has("{{task}}") && !has("{{outcome}}")
}

/// The form distinguishes a limit from a peak, and the colour one task from another.
#[test]
fn limits_and_peaks_have_one_form_on_every_board_and_one_colour_outside_of_tasks() {
    let mut seen = (0, 0, 0, 0);
    for board in boards() {
        for panel in board.panels().into_iter().filter(|p| p["type"] == "timeseries") {
            let by_task = is_by_task(panel);
            for name in series(panel) {
                let place = format!("{} / {} / {name}", board.stem, text(panel, "title"));
                let (color, dash) = (set(panel, &name, "color"), set(panel, &name, "custom.lineStyle"));
                let is = |word: &str| name.split(' ').any(|w| w == word);
                let (form, fixed) = if is("limit") {
                    seen.0 += 1;
                    (json!([12, 6]), json!("red"))
                } else if is("window") {
                    assert_eq!(set(panel, &name, "custom.drawStyle"), "points", "{place}");
                    seen.1 += 1;
                    (Value::Null, json!("yellow"))
                } else if is("peak") {
                    seen.2 += 1;
                    (json!([4, 4]), json!("orange"))
                } else {
                    (dash["dash"].clone(), color["fixedColor"].clone())
                };
                assert_eq!(dash["dash"], form, "{place}");
                if by_task {
                    let mode = &panel["fieldConfig"]["defaults"]["color"]["mode"];
                    assert_eq!((mode, &color), (&json!("palette-classic-by-name"), &Value::Null), "{place}");
                    seen.3 += 1;
                } else {
                    assert_eq!(color["fixedColor"], fixed, "{place}");
                }
            }
        }
    }
    assert!(seen.0 >= 8 && seen.1 >= 1 && seen.2 >= 3 && seen.3 >= 20, "{seen:?}");
}

#[test]
fn an_outcome_has_one_colour_on_every_board() {
    let colours = [
        ("success", "green"),
        ("error", "red"),
        ("signal", "orange"),
        ("oom", "dark-red"),
        ("killed", "blue"),
        ("unknown", "purple"),
    ];
    let mut seen = 0;
    for board in boards() {
        let shows = |target: &Value| text(target, "legendFormat").ends_with("{{outcome}}");
        for panel in board.panels().into_iter().filter(|p| p["type"] == "timeseries" && shows(&p["targets"][0])) {
            let before = text(&panel["targets"][0], "legendFormat").replace("{{outcome}}", "").replace("{{task}}", "x");
            for (outcome, colour) in colours {
                let place = format!("{} / {}: {outcome}", board.stem, text(panel, "title"));
                assert_eq!(set(panel, &format!("{before}{outcome}"), "color")["fixedColor"], colour, "{place}");
            }
            seen += 1;
        }
    }
    assert!(seen >= 4, "{seen} boards show how tasks end");
}

/// Grafana writes the text for "no data" into every empty cell.
#[test]
fn an_empty_cell_of_a_table_is_a_dash() {
    for board in boards() {
        for panel in board.panels().into_iter().filter(|p| p["type"] == "table") {
            assert_eq!(set(panel, "any", "noValue"), "-", "{} / {}", board.stem, text(panel, "title"));
        }
    }
}

/// A picture of a number 4 rows high has no room for a graph beside it.
#[test]
fn a_low_number_has_no_graph_behind_it() {
    for board in boards() {
        for panel in board.panels().into_iter().filter(|p| p["type"] == "stat" && p["gridPos"]["h"].as_u64() <= Some(4))
        {
            let place = format!("{} / {}", board.stem, text(panel, "title"));
            assert_eq!(panel["options"]["graphMode"], "none", "{place}: the number is too small to be read");
        }
    }
}
