//! How much a panel shows and in which order: columns of tables, lines of graphs, units, rows that a host without GPUs
//! does not need, and zeros that are no measurement.

use allostat::exporters::catalogue;
use allostat::model::metric::MetricDesc;
use allostat::model::units::Unit;
use serde_json::Value;

use crate::boards::files::{Board, boards, list, text};
use crate::boards::laws::{Expression, of_panel, value_columns};
use crate::boards::style::set;

/// Each panel with the place that names it in a failure.
fn of_all(boards: &[Board]) -> impl Iterator<Item = (&Board, &Value, String)> {
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

/// A column that is outside of its panel is found by scrolling alone, and a head that is cut off names nothing.
///
/// Promise (Code, boards and alerts): The columns of each table fit into its panel, with their heads, 1600 pixels wide
#[test]
fn table_columns_fit_into_their_panel_with_their_heads() {
    let (boards, mut seen, mut wrong) = (boards(), 0, Vec::new());
    for (_, panel, place) in of_all(&boards).filter(|(_, panel, _)| panel["type"] == "table") {
        // As xtask/pictures/page.tsx lays a panel out; a column without a width takes its share of the rest.
        let cells = panel["gridPos"]["w"].as_f64().expect("a width");
        let width = cells * (1600.0 - 8.0) / 24.0 - 8.0;
        let options = &list(&panel["transformations"]).last().expect("it orders its columns")["options"];
        let order = options["indexByName"].as_object().expect("an order");
        let shown = order.keys().filter(|column| options["excludeByName"][*column] != true);
        let names: Vec<&str> = shown.map(|column| options["renameByName"][column].as_str().unwrap_or(column)).collect();
        let fixed = |name: &str| set(panel, name, "custom.width").as_f64();
        let least = panel["fieldConfig"]["defaults"]["custom"]["minWidth"].as_f64().expect("a least width");
        let taken: f64 = names.iter().filter_map(|name| fixed(name)).sum();
        let sharing = names.iter().filter(|name| fixed(name).is_none()).count();
        let share = (width - taken) / f64::from(u32::try_from(sharing).expect("few"));
        if sharing == 0 || share < least {
            wrong.push(format!("{place}: {taken} of {width:.0} pixels are taken, {sharing} columns share the rest"));
        }
        for name in &names {
            let needs = 7.0 * f64::from(u32::try_from(name.len()).expect("short")) + 14.0;
            if fixed(name).unwrap_or(share) < needs {
                wrong.push(format!("{place}: the head {name:?} needs {needs} pixels"));
            }
        }
        seen += 1;
    }
    assert!(seen >= 30, "{seen}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A graph of twenty hosts with a line for each of them shows none of them.
///
/// Promise (Code, boards and alerts): A graph with a line for each host or GPU draws the highest five at most
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
            if counts.is_empty() || counts.iter().any(|count| *count > 5) {
                wrong.push(format!("{place} / {}: {expression}", text(target, "refId")));
            }
        }
    }
    assert!(seen >= 40, "{seen}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A lifetime peak may be that of a start hours ago.
///
/// Promise (Code, boards and alerts): Top tasks by memory are those by working set, not by lifetime peak
#[test]
fn tasks_nearest_to_their_limit_are_those_of_now() {
    let (boards, mut seen) = (boards(), 0);
    let is_top = |panel: &Value| text(panel, "title").starts_with("Top ") && text(panel, "title").ends_with("/ limit");
    for (board, panel, place) in of_all(&boards).filter(|(_, panel, _)| is_top(panel)) {
        for requested in of_panel(board, panel) {
            let names: Vec<&str> = requested.names.selectors.iter().map(|s| s.name.as_str()).collect();
            assert!(!names.iter().any(|name| name.ends_with("_memory_peak_bytes")), "{place}: {names:?}");
            assert!(names.iter().any(|name| name.ends_with("_memory_working_set_bytes")), "{place}: {names:?}");
            seen += 1;
        }
    }
    assert_eq!(seen, 3);
}

/// Most hosts have no GPU.
///
/// Promise (Code, boards and alerts): Panels of GPUs lie in a collapsed row, except on the board of GPUs
#[test]
fn panels_of_gpus_lie_in_a_collapsed_row_on_other_boards() {
    let mut seen = 0;
    for board in boards().iter().filter(|board| board.stem != "allostat-gpu") {
        let is_of_gpus = |panel: &Value| {
            let requested = of_panel(board, panel);
            requested.iter().flat_map(|e| &e.names.selectors).all(|s| s.name.contains("_device_"))
        };
        for panel in list(&board.json["panels"]) {
            let is_collapsed = panel["type"] == "row" && panel["collapsed"] == true;
            seen += list(&panel["panels"]).iter().filter(|inner| is_collapsed && is_of_gpus(inner)).count();
            let open = if panel["type"] == "row" { list(&panel["panels"]) } else { std::slice::from_ref(panel) };
            for panel in open.iter().filter(|_| !is_collapsed) {
                assert!(!is_of_gpus(panel), "{} / {} is shown without a GPU", board.stem, text(panel, "title"));
            }
        }
    }
    assert!(seen >= 3, "{seen}");
}

/// What an expression makes of the values of its one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Usage {
    Value,
    Rate,
    /// How many series, or of how many something is true.
    Count,
    /// How long ago a moment was.
    Age,
    /// Milliseconds, as Grafana wants a moment.
    Moment,
}

/// The family whose values an expression shows, if it is one: labels come from `_info`, starts from `_created`.
fn family_of(requested: &Expression) -> Option<(&'static MetricDesc, Usage)> {
    let is_value = |name: &str| !name.ends_with("_info") && !name.ends_with("_created");
    let selectors: Vec<_> = requested.names.selectors.iter().filter(|s| is_value(&s.name)).collect();
    let family = catalogue::family(&selectors.first()?.name)?;
    let is_one = selectors.iter().all(|s| catalogue::family(&s.name).is_some_and(|other| other.name == family.name));
    let is_inside = |function: &str| selectors.iter().any(|s| s.inside.iter().any(|inner| inner == function));
    let usage = if is_inside("count") || requested.text.contains(" bool ") {
        Usage::Count
    } else if is_inside("timestamp") || requested.text.contains("time() - ") {
        Usage::Age
    } else if requested.text.ends_with("* 1000") {
        Usage::Moment
    } else if is_inside("rate") && !is_inside("histogram_quantile") {
        Usage::Rate
    } else {
        Usage::Value
    };
    is_one.then_some((family, usage))
}

/// Grafana's units for it.
fn units(family: &MetricDesc, usage: Usage) -> &'static [&'static str] {
    match (family.unit, usage) {
        (_, Usage::Count) => &["short"],
        (Unit::Bytes, Usage::Rate) => &["Bps"],
        (Unit::Bytes, _) => &["bytes"],
        (Unit::Seconds, Usage::Rate) if family.name.contains("_cpu_") => &["suffix:cores"],
        // A share of the time, or how many at once.
        (Unit::Seconds, Usage::Rate) => &["percentunit", "short"],
        (Unit::Seconds | Unit::TimestampSeconds, Usage::Age) => &["s", "dtdurations"],
        (Unit::Seconds, _) => &["s"],
        (Unit::TimestampSeconds, Usage::Moment) => &["dateTimeAsIso", "dateTimeFromNow"],
        (Unit::TimestampSeconds, _) => &[],
        (Unit::Ratio, _) => &["percentunit"],
        // The CPUs of a host beside its load.
        (Unit::Cores, _) => &["suffix:cores", "short"],
        (Unit::Celsius, _) => &["celsius"],
        (Unit::Hertz, _) => &["hertz"],
        (Unit::Joules, Usage::Rate) | (Unit::Watts, _) => &["watt"],
        (Unit::Joules, _) => &["joule"],
        (Unit::None, Usage::Rate) => &["ops", "cps", "pps", "reqps"],
        // Of a cell with mapped values.
        (Unit::None, _) => &["short", "string", "bool_yes_no"],
    }
}

/// Promise (Code, boards and alerts): A panel of one family has the unit of the catalogue: a rate of joules is in watts
#[test]
fn panels_of_one_family_have_its_unit_of_the_catalogue() {
    let (boards, mut seen, mut wrong) = (boards(), 0, Vec::new());
    for (board, panel, place) in of_all(&boards) {
        let columns = if panel["type"] == "table" { value_columns(panel) } else { Vec::new() };
        let options = list(&panel["transformations"]).last().map_or(Value::Null, |step| step["options"].clone());
        for (n, (requested, target)) in of_panel(board, panel).iter().zip(list(&panel["targets"])).enumerate() {
            let Some((family, usage)) = family_of(requested) else { continue };
            let column = columns.get(n);
            if column.is_some_and(|column| options["excludeByName"][column] == true) {
                continue;
            }
            let renamed = column.map(|column| options["renameByName"][column].as_str().unwrap_or(column));
            let own = set(panel, renamed.unwrap_or_else(|| text(target, "legendFormat")), "unit");
            let unit = own.as_str().unwrap_or_else(|| text(&panel["fieldConfig"]["defaults"], "unit"));
            let expected = units(family, usage);
            if !expected.contains(&unit) {
                wrong.push(format!("{place} / {}: {unit}, not {expected:?}", text(target, "refId")));
            }
            seen += 1;
        }
    }
    assert!(seen >= 200, "{seen}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A line at 0 states that something was measured. A number above the rows may state that nothing happened.
const ZEROS: [(&str, &str); 1] = [("allostat-lifecycle / Events by kind", "a kind that is new began at 0")];

/// Promise (Code, boards and alerts): Only a number of its own is 0 where there is no series; a line is absent
#[test]
fn zeros_without_a_series_stand_only_in_single_numbers() {
    let (boards, mut seen, mut excepted) = (boards(), 0, 0);
    for (board, panel, place) in of_all(&boards) {
        for requested in of_panel(board, panel) {
            if !["or 0 * ", "vector(0)"].iter().any(|zero| requested.text.contains(zero)) {
                continue;
            }
            let is_excepted = ZEROS.iter().any(|(panel, _)| *panel == place);
            assert!(panel["type"] == "stat" || is_excepted, "{place}: {}", requested.text);
            seen += 1;
            excepted += usize::from(is_excepted);
        }
    }
    assert!(seen >= 8 && excepted == ZEROS.len(), "{seen}, {excepted}");
}
