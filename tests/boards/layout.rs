//! How much a panel shows and in which order: columns of tables, lines of graphs, units, rows that a host without GPUs
//! does not need, and zeros that are no measurement.

use serde_json::Value;

use crate::boards::files::{Board, boards, list, text};

/// Each panel with the place that names it in a failure.
fn of_all<'a>(boards: &'a [Board]) -> impl Iterator<Item = (&'a Board, &'a Value, String)> {
    let place = |board: &Board, panel: &Value| format!("{} / {}", board.stem, text(panel, "title"));
    boards.iter().flat_map(move |board| board.panels().into_iter().map(move |p| (board, p, place(board, p))))
}

/// What no reader knows by heart.
fn is_id(column: &str) -> bool {
    column == "alloc_id" || column == "pci_bus_id" || column.ends_with("_uuid")
}

/// Promise (Code, boards and alerts): Tables show names and values first, and IDs of allocs and UUIDs last
#[test]
fn table_columns_begin_with_names_and_values_and_end_with_ids() {
    let (boards, mut seen, mut wrong) = (boards(), 0, Vec::new());
    for (_, panel, place) in of_all(&boards).filter(|(_, panel, _)| panel["type"] == "table") {
        let options = &list(&panel["transformations"]).last().expect("it orders its columns")["options"];
        let order = options["indexByName"].as_object().expect("an order");
        let of = |column: &str| order[column].as_u64().expect("a number");
        for id in order.keys().filter(|column| is_id(column)) {
            seen += 1;
            let later = order.keys().filter(|column| !is_id(column) && of(column) > of(id));
            wrong.extend(later.map(|column| format!("{place}: {id} before {column}")));
        }
    }
    assert!(seen >= 10, "{seen}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A graph of twenty hosts with a line for each of them shows none of them.
///
/// Promise (Code, boards and alerts): A graph with a line for each host or GPU draws the highest ten at most
#[test]
fn graphs_with_a_line_per_host_or_gpu_draw_only_some_of_them() {
    let (boards, mut seen, mut wrong) = (boards(), 0, Vec::new());
    let is_graph = |panel: &Value| panel["type"] == "timeseries" || panel["type"] == "bargauge";
    let some = regex::Regex::new(r"\b(?:top|bottom)k\((\d+), ").expect("it is one");
    for (board, panel, place) in of_all(&boards).filter(|(_, panel, _)| is_graph(panel)) {
        // On the board of one host or alloc its reader selects the host.
        let instance = board.variables().iter().find(|variable| text(variable, "name") == "instance");
        let is_of_one = instance.is_some_and(|variable| variable["multi"] != true);
        for target in list(&panel["targets"]) {
            let (legend, expression) = (text(target, "legendFormat"), text(target, "expr"));
            let is_of_each = legend.contains("{{instance}}") || legend.contains("{{index}}");
            if is_of_one || !is_of_each || expression.contains("instance=\"$host\"") {
                continue;
            }
            seen += 1;
            let counts: Vec<u32> = some.captures_iter(expression).map(|c| c[1].parse().expect("digits")).collect();
            if counts.is_empty() || counts.iter().any(|count| *count > 10) {
                wrong.push(format!("{place} / {}: {expression}", text(target, "refId")));
            }
        }
    }
    assert!(seen >= 40, "{seen}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
