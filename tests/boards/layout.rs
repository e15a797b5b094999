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
