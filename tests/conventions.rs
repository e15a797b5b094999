//! What we say under a name of OpenTelemetry's semantic conventions is what they publish under it: their own package is read, as PyPI has it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Instrument and unit of each metric, and the names of all attributes: `NAME: Final = "name"`, then what they say of it.
#[derive(Default)]
struct Published {
    metrics: BTreeMap<String, (String, String)>,
    attributes: BTreeSet<String>,
}

impl Published {
    fn read(&mut self, dir: &Path) {
        for entry in std::fs::read_dir(dir).expect("the package's directory").flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if path.is_dir() {
                self.read(&path);
            } else if name.ends_with("_attributes.py") {
                let text = std::fs::read_to_string(&path).expect("the package is whole");
                self.attributes.extend(text.lines().filter_map(constant).map(str::to_owned));
            } else if name.ends_with("_metrics.py") {
                self.take_metrics(&std::fs::read_to_string(&path).expect("the package is whole"));
            }
        }
    }

    fn take_metrics(&mut self, text: &str) {
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let Some(name) = constant(line) else { continue };
            if lines.next() != Some("\"\"\"") {
                continue;
            }
            let said: Vec<&str> = lines.by_ref().take_while(|line| *line != "\"\"\"").collect();
            let of = |key: &str| said.iter().find_map(|line| line.strip_prefix(key)).unwrap_or_default().to_owned();
            self.metrics.insert(name.to_owned(), (of("Instrument: "), of("Unit: ")));
        }
    }
}

fn constant(line: &str) -> Option<&str> {
    line.split_once(": Final = \"")?.1.strip_suffix('"')
}

/// `- OTLP: name (instrument, unit), by attribute, attribute=value` of the page that is made from the catalogue.
fn ours() -> Vec<(String, (String, String), Vec<String>)> {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/metrics.md")).expect("our own page");
    let twins = page.lines().filter_map(|line| line.strip_prefix("- OTLP: "));
    let read = |line: &str| {
        let (name, rest) = line.split_once(" (")?;
        let (kind, rest) = rest.split_once(')')?;
        let (instrument, unit) = kind.split_once(", ")?;
        let attributes = rest.strip_prefix(", by ").unwrap_or_default().split(", ").filter(|word| !word.is_empty());
        let attributes = attributes.map(|word| word.split('=').next().unwrap_or(word).to_owned()).collect();
        Some((name.to_owned(), (instrument.to_owned(), unit.to_owned()), attributes))
    };
    twins.filter_map(read).collect()
}

#[test]
fn each_name_of_the_conventions_has_the_instrument_the_unit_and_attributes_that_they_publish() {
    let Some(package) = crate::common::part_file("semantic-conventions", "opentelemetry/semconv") else {
        skip_test!("no-python")
    };
    let schemas = std::fs::read_to_string(package.join("schemas.py")).unwrap();
    assert!(schemas.contains(allostat::exporters::otlp::SCHEMA_URL), "the package is of another version");
    let mut published = Published::default();
    published.read(&package);
    let of_conventions: Vec<_> = ours().into_iter().filter(|(name, ..)| !name.starts_with("allostat.")).collect();
    let names: BTreeSet<_> = of_conventions.iter().map(|(name, ..)| name).collect();
    assert!(names.len() >= 33 && published.metrics.len() > 300, "{} of {}", names.len(), published.metrics.len());
    for (name, kind, attributes) in &of_conventions {
        assert_eq!(published.metrics.get(name), Some(kind), "{name}");
        for attribute in attributes {
            // One of ours has our name in front, but for the driver's two counters of errors.
            let is_ours = attribute.starts_with("allostat.") || (name == "hw.errors" && attribute == "counter");
            assert!(is_ours || published.attributes.contains(attribute), "{name}: {attribute}");
        }
    }
}
