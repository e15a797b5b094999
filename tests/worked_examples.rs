//! The worked examples of `CONTRIBUTING.md` do what it says.

#[path = "../examples/collector.rs"]
#[allow(dead_code, reason = "its `main`")]
mod collector;

use allostat::collectors::{CollectError, Collector};
use allostat::host::roots::Roots;
use allostat::model::metric::{Samples, Value};

use self::collector::EntropyCollector;

/// What it has of a host with this file, and whether there was an error that counts.
fn collected(text: Option<&str>) -> (Vec<Value>, bool) {
    let dir = tempfile::tempdir().expect("a directory can be created");
    let file = dir.path().join("proc/sys/kernel/random/entropy_avail");
    std::fs::create_dir_all(file.parent().expect("it has one")).expect("a directory can be created");
    if let Some(text) = text {
        std::fs::write(&file, text).expect("a file can be written");
    }
    let mut out = Samples::default();
    let result = EntropyCollector.collect(&Roots::below(dir.path()), &mut out);
    assert!(out.0.iter().all(|sample| EntropyCollector.metrics().contains(&sample.desc)));
    let is_error = result.err().as_ref().and_then(CollectError::reason).is_some();
    (out.0.into_iter().map(|sample| sample.value).collect(), is_error)
}

#[test]
fn example_collector_reads_its_file_and_has_no_value_without_it() {
    assert_eq!(collected(Some("256\n")), (vec![Value::Int(256)], false));
    assert_eq!(collected(Some("0\n")), (vec![Value::Int(0)], false));
    assert_eq!(collected(None), (vec![], false), "absent is never 0");
    assert_eq!(collected(Some("many\n")), (vec![], true));
}

#[test]
fn example_collector_has_at_most_sixty_lines_and_the_guide_names_it() {
    let text = include_str!("../examples/collector.rs");
    assert!(text.lines().count() <= 60, "{}", text.lines().count());
    assert!(include_str!("../CONTRIBUTING.md").contains("(examples/collector.rs)"));
}
