//! The last lines of stderr, as they are stored with the end of a task.

use super::api_types::AllocRow;
use super::output::{Paint, Style, printable};
use super::width::wrapped;

/// The last lines that its tasks wrote to stderr before they failed. Empty: none is recorded, or this client may not
/// see it.
pub(super) fn of_tasks(alloc: &AllocRow, screen: Option<u16>, paint: Paint) -> String {
    let mut out = String::new();
    for (name, task) in &alloc.tasks {
        let exits = task.last_exit.iter().chain(task.exits.iter().rev().map(|exit| &exit.exit));
        let Some(output) = exits.filter_map(|exit| exit.last_output.as_ref()).next() else { continue };
        let whole = if output.cut { "last lines of stderr" } else { "stderr" };
        out.push_str(&format!("\n{}\n", paint.paint(Style::Dim, &format!("{whole} of {}:", printable(name)))));
        for line in output.lines() {
            let line = printable(&line.replace('\t', "    "));
            out.push_str(&wrapped(&format!("  {line}"), screen, 2));
            out.push('\n');
        }
    }
    out
}
