//! The functions that Nomad documents, each a line of a table in the file of its subject.

mod collections;
mod encoding;
mod files;
mod networks;
mod numbers;
mod outside;
mod sets;
mod strings;

use hcl_edit::expr::FuncCall;

use super::{Evaluated, Fault, Outside, Scope, Value};
use crate::jobspec::diagnostic::Span;
use crate::jobspec::nearest::nearest;

/// Errors: what is wrong with the arguments, in words.
type Outcome = Result<Value, String>;

/// A function: its name, how many arguments it takes at least and at most, and what it does.
struct Function {
    name: &'static str,
    arguments: (usize, usize),
    call: Call,
}

enum Call {
    Pure(fn(&[Value]) -> Outcome),
    Asks(fn(&[Value], &dyn Outside) -> Outcome),
}

const ANY: usize = usize::MAX;

const fn pure(name: &'static str, arguments: (usize, usize), call: fn(&[Value]) -> Outcome) -> Function {
    Function { name, arguments, call: Call::Pure(call) }
}

static ALL: &[&[Function]] = &[
    strings::FUNCTIONS,
    numbers::FUNCTIONS,
    collections::FUNCTIONS,
    sets::FUNCTIONS,
    encoding::FUNCTIONS,
    files::FUNCTIONS,
    networks::FUNCTIONS,
    outside::FUNCTIONS,
];

/// Nomad has these; here they are not.
const ABSENT: &[(&str, &str)] = &[
    ("bcrypt", "it yields another hash each time the file is read"),
    ("rsadecrypt", "a key does not belong in a job file"),
    ("yamlencode", "write the text, or use jsonencode: JSON is YAML"),
    ("yamldecode", "convert the file to JSON and use jsondecode"),
    ("csvdecode", "convert the file to JSON and use jsondecode"),
    ("md5", "use sha256"),
    ("formatdate", "write the date itself"),
    ("timeadd", "write the time itself"),
    ("uuidv5", "write the value itself"),
    ("convert", "types follow from what a field takes"),
];

/// All that can be called, in order.
pub fn names() -> Vec<&'static str> {
    let mut names: Vec<&str> = ALL.iter().flat_map(|of| of.iter().map(|function| function.name)).collect();
    names.extend(["can", "try"]);
    names.sort_unstable();
    names
}

pub(super) fn call(name: &str, arguments: &[Value], outside: &dyn Outside, span: &Span) -> Evaluated {
    let Some(function) = ALL.iter().flat_map(|of| of.iter()).find(|function| function.name == name) else {
        return Err(unknown(name, span));
    };
    let (least, most) = function.arguments;
    if !(least..=most).contains(&arguments.len()) {
        let takes = match (least, most) {
            (least, ANY) => format!("at least {least}"),
            (least, most) if least == most => least.to_string(),
            (least, most) => format!("{least} to {most}"),
        };
        let message = format!("{name}() takes {takes} arguments, not {}", arguments.len());
        return Err(Fault::new(span.clone(), message));
    }
    let outcome = match function.call {
        Call::Pure(call) => call(arguments),
        Call::Asks(call) => call(arguments, outside),
    };
    outcome.map_err(|why| Fault::new(span.clone(), format!("{name}(): {why}")))
}

fn unknown(name: &str, span: &Span) -> Fault {
    if let Some((_, advice)) = ABSENT.iter().find(|(absent, _)| *absent == name) {
        return Fault::new(span.clone(), format!("{name}() is not supported")).advise(*advice);
    }
    let fault = Fault::new(span.clone(), format!("there is no function {name}()"));
    match nearest(name, names()) {
        Some(close) => fault.advise(format!("did you mean {close}()?")),
        None => fault,
    }
}

/// `try(a, b, ...)`: the first that has a value.
pub(super) fn attempt(scope: &Scope<'_>, call: &FuncCall, span: &Span) -> Evaluated {
    let mut last = Fault::new(span.clone(), "try() takes at least 1 argument");
    for argument in call.args.iter() {
        match scope.evaluate(argument) {
            Ok(value) => return Ok(value),
            Err(fault) => last = fault,
        }
    }
    Err(last)
}

fn text(arguments: &[Value], at: usize) -> Result<String, String> {
    let value = arguments.get(at).unwrap_or(&Value::Null);
    value.to_text().ok_or_else(|| format!("argument {} is a string, not {}", at + 1, value.kind()))
}

fn float(arguments: &[Value], at: usize) -> Result<f64, String> {
    let value = arguments.get(at).unwrap_or(&Value::Null);
    value.to_float().ok_or_else(|| format!("argument {} is a number, not {}", at + 1, value.kind()))
}

fn whole(arguments: &[Value], at: usize) -> Result<i64, String> {
    let value = arguments.get(at).unwrap_or(&Value::Null);
    match value.to_number() {
        Some(Value::Int(n)) => i64::try_from(n).map_err(|_| format!("argument {} is too large", at + 1)),
        _ => Err(format!("argument {} is a whole number, not {}", at + 1, value.kind())),
    }
}

fn list(arguments: &[Value], at: usize) -> Result<&[Value], String> {
    match arguments.get(at) {
        Some(Value::List(list)) => Ok(list),
        other => Err(format!("argument {} is a list, not {}", at + 1, other.unwrap_or(&Value::Null).kind())),
    }
}

fn texts(arguments: &[Value], at: usize) -> Result<Vec<String>, String> {
    let elements = list(arguments, at)?.iter().map(Value::to_text);
    elements.collect::<Option<_>>().ok_or_else(|| format!("argument {} is a list of strings", at + 1))
}

fn number(n: f64) -> Outcome {
    Value::number(n).ok_or_else(|| "the result is no number".to_owned())
}

/// A text of so many bytes would have to be built: refused before it is.
fn bounded(bytes: usize) -> Result<(), String> {
    const MOST: usize = 4 << 20;
    if bytes > MOST { Err(format!("the result would have more than {} MiB", MOST >> 20)) } else { Ok(()) }
}
