//! What we say under a name of OpenTelemetry's semantic conventions is what they publish under it: their own package is
//! read, as PyPI has it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Instrument and unit of each metric, and the names of all attributes: `NAME: Final = "name"`, then what they say of
/// it.
#[derive(Default)]
struct Published {
    metrics: BTreeMap<String, (String, String)>,
    attributes: BTreeSet<String>,
    /// By the name of the list: `SystemFilesystemState`.
    values: BTreeMap<String, BTreeSet<String>>,
}

/// Attributes whose names have a key behind them.
const TEMPLATES: [&str; 4] = ["container.label", "k8s.pod.annotation", "k8s.pod.label", "k8s.namespace.label"];

impl Published {
    fn read(&mut self, dir: &Path) {
        for entry in std::fs::read_dir(dir).expect("the package's directory").flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if path.is_dir() {
                self.read(&path);
            } else if name.ends_with("_attributes.py") {
                let text = std::fs::read_to_string(&path).expect("the package is whole");
                self.take_attributes(&text);
            } else if name.ends_with("_metrics.py") {
                self.take_metrics(&std::fs::read_to_string(&path).expect("the package is whole"));
            }
        }
    }

    /// Without those that are deprecated. Values are those of the lists of an attribute.
    fn take_attributes(&mut self, text: &str) {
        let mut lines = text.lines().peekable();
        let mut list = None;
        while let Some(line) = lines.next() {
            if let Some(name) = constant(line) {
                lines.next_if_eq(&"\"\"\"");
                if !lines.peek().is_some_and(|about| about.starts_with("Deprecated: ")) {
                    self.attributes.insert(name.to_owned());
                }
            }
            if let Some(class) = line.strip_prefix("class ") {
                list = class.strip_suffix("Values(Enum):").map(str::to_owned);
            }
            let value = line.strip_prefix("    ").and_then(|rest| rest.split_once(" = \"")?.1.strip_suffix('"'));
            if let (Some(list), Some(value)) = (&list, value) {
                self.values.entry(list.clone()).or_default().insert(value.to_owned());
            }
        }
    }

    /// Whether it is published, alone or as a key of a template (`container.label.<key>`).
    fn has(&self, attribute: &str) -> bool {
        let template = attribute.match_indices('.').map(|(at, _)| &attribute[..at]);
        self.attributes.contains(attribute)
            || template.filter(|prefix| TEMPLATES.contains(prefix)).any(|prefix| self.attributes.contains(prefix))
    }

    fn take_metrics(&mut self, text: &str) {
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let Some(name) = constant(line) else { continue };
            if lines.next() != Some("\"\"\"") {
                continue;
            }
            let message: Vec<&str> = lines.by_ref().take_while(|line| *line != "\"\"\"").collect();
            let of = |key: &str| message.iter().find_map(|line| line.strip_prefix(key)).unwrap_or_default().to_owned();
            self.metrics.insert(name.to_owned(), (of("Instrument: "), of("Unit: ")));
        }
    }
}

fn constant(line: &str) -> Option<&str> {
    line.split_once(": Final = \"")?.1.strip_suffix('"')
}

/// `- OTLP: name (instrument, unit), by attribute, attribute=value` of the page that is made from the catalogue.
fn exported_names() -> Vec<(String, (String, String), Vec<String>)> {
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
fn semantic_convention_names_have_the_published_instrument_unit_and_attributes() {
    let Some(package) = crate::common::part_file("semantic-conventions", "opentelemetry/semconv") else {
        skip_test!("no-python")
    };
    let schemas = std::fs::read_to_string(package.join("schemas.py")).unwrap();
    assert!(schemas.contains(allostat::exporters::otlp::SCHEMA_URL), "the package is of another version");
    let mut published = Published::default();
    published.read(&package);
    let of_conventions: Vec<_> =
        exported_names().into_iter().filter(|(name, ..)| !name.starts_with("allostat.")).collect();
    let names: BTreeSet<_> = of_conventions.iter().map(|(name, ..)| name).collect();
    assert!(names.len() >= 33 && published.metrics.len() > 300, "{} of {}", names.len(), published.metrics.len());
    for (name, kind, attributes) in &of_conventions {
        assert_eq!(published.metrics.get(name), Some(kind), "{name}");
        for attribute in attributes {
            // One of ours has our name in front, but for the driver's two counters of errors.
            let is_own = attribute.starts_with("allostat.") || (name == "hw.errors" && attribute == "counter");
            assert!(is_own || published.has(attribute), "{name}: {attribute}");
        }
    }
}

/// On resources and on points of the golden files.
#[test]
fn attributes_of_resources_and_points_are_published_and_not_deprecated() {
    let Some(package) = crate::common::part_file("semantic-conventions", "opentelemetry/semconv") else {
        skip_test!("no-python")
    };
    let mut published = Published::default();
    published.read(&package);
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/exposition");
    let files = std::fs::read_dir(golden).expect("golden files").flatten().map(|entry| entry.path());
    let mut resources = 0;
    for path in files.filter(|path| path.extension().is_some_and(|extension| extension == "otlp")) {
        let text = std::fs::read_to_string(&path).expect("a golden file");
        for line in text.lines().filter(|line| line.starts_with('{')) {
            resources += 1;
            let keys =
                line.trim_matches(['{', '}']).split("\",").filter_map(|pair| pair.split_once('=')).map(|(k, _)| k);
            for key in keys.filter(|key| !key.starts_with("allostat.")) {
                assert!(published.has(key), "{}: {key}", path.display());
            }
        }
    }
    assert!(resources > 20, "{resources}");
    for attribute in ["container.label.team", "k8s.pod.annotation.team", "container.image.tags", "log.iostream"] {
        assert!(published.has(attribute), "{attribute}");
    }
    assert!(!published.has("container.runtime") && !published.has("container.labels.team"), "they are deprecated");
    let states = |list: &str| published.values[list].iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(states("SystemFilesystemState"), ["free", "reserved", "used"]);
    assert_eq!(states("SystemPagingState"), ["free", "used"]);
}
