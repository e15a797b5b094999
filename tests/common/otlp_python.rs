//! OTLP as Python reads it.

#![allow(dead_code)]

use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::otlp_points::{Attributes, DataPoint, Value};

/// The script that reads and receives OTLP in Python, with its first argument; `None` where its libraries are not
/// there.
pub fn python(word: &str) -> Option<Command> {
    let root = crate::common::part_file("opentelemetry-proto", "opentelemetry/proto/metrics")?;
    let mut command = Command::new(crate::common::part("python3")?);
    command.args(["-c", include_str!("otlp.py"), word]).env("PYTHONPATH", root.ancestors().nth(3)?);
    Some(command)
}

/// As the script reports points; of exemplars only how many there are.
pub fn from_python(points: &serde_json::Value) -> Vec<DataPoint> {
    let text = |value: &serde_json::Value| value.as_str().expect("a text").to_owned();
    let map = |value: &serde_json::Value| -> Attributes {
        value.as_object().expect("attributes").iter().map(|(key, value)| (key.clone(), text(value))).collect()
    };
    let kinds = ["sum", "up-down sum", "gauge", "histogram", "exponential_histogram"];
    let point = |point: &serde_json::Value| {
        let (value, whole) = (&point["value"], |name: &str| point[name].as_u64().expect("a number"));
        let value = if value == "ended" {
            Value::Ended
        } else if let Some(n) = value.get("int") {
            Value::Int(n.as_i64().expect("a whole number"))
        } else if let Some(n) = value.get("float") {
            Value::Float(n.as_f64().expect("a number"))
        } else if let Some(scale) = value.get("scale") {
            let small = |n: &serde_json::Value| i32::try_from(n.as_i64().expect("a number")).expect("small");
            Value::Exponential {
                scale: small(scale),
                zeros: value["zeros"].as_u64().expect("a count"),
                offset: small(&value["offset"]),
                counts: value["counts"]
                    .as_array()
                    .expect("a list")
                    .iter()
                    .map(|n| n.as_u64().expect("a count"))
                    .collect(),
                sum: value["sum"].as_f64().expect("a sum"),
            }
        } else {
            let all = |name: &str| value[name].as_array().expect("a list").iter();
            Value::Histogram {
                bounds: all("bounds").map(|n| n.as_f64().expect("a bound")).collect(),
                counts: all("counts").map(|n| n.as_u64().expect("a count")).collect(),
                sum: value["sum"].as_f64().expect("a sum"),
            }
        };
        DataPoint {
            resource: map(&point["resource"]),
            metric: text(&point["metric"]),
            unit: text(&point["unit"]),
            kind: kinds.into_iter().find(|kind| point["kind"] == *kind).expect("a kind"),
            is_delta: point["is_delta"].as_bool().expect("true or false"),
            attributes: map(&point["attributes"]),
            start: whole("start"),
            at: whole("at"),
            value,
            exemplars: vec![String::new(); usize::try_from(whole("exemplars")).expect("few")],
        }
    };
    points.as_array().expect("points").iter().map(point).collect()
}

/// What a reader in Python finds in a request; `None` where that is not there.
pub fn read_by_python(bytes: &[u8]) -> Option<Vec<DataPoint>> {
    let mut child = python("decode")?.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it must start");
    let (mut stdin, bytes) = (child.stdin.take().expect("piped"), bytes.to_vec());
    let writer = std::thread::spawn(move || stdin.write_all(&bytes));
    let output = child.wait_with_output().expect("our own child");
    writer.join().expect("the writer does not panic").expect("it reads everything");
    assert!(output.status.success());
    Some(from_python(&serde_json::from_slice(&output.stdout).expect("JSON")))
}
