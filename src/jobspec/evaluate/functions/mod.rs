//! The functions that Nomad documents, each a line of a table in the file of its subject.

mod arguments;
mod collections;
mod dates;
mod encoding;
mod files;
mod impure;
mod networks;
mod numbers;
mod sets;
mod strings;
mod yaml;

use self::arguments::{ANY, HclFunction, HclFunctionBody};
use super::basis::{Evaluated, EvaluationFault, ExternalInputs};
use super::value::HclValue;
use crate::jobspec::diagnostic::Span;
use crate::model::nearest::nearest;

static ALL: &[&[HclFunction]] = &[
    strings::FUNCTIONS,
    numbers::FUNCTIONS,
    collections::FUNCTIONS,
    sets::FUNCTIONS,
    dates::FUNCTIONS,
    encoding::FUNCTIONS,
    yaml::FUNCTIONS,
    files::FUNCTIONS,
    networks::FUNCTIONS,
    impure::FUNCTIONS,
];

/// Nomad has these; here they are not.
const ABSENT: &[(&str, &str)] = &[
    ("bcrypt", "it yields another hash each time the file is read"),
    ("rsadecrypt", "a key does not belong in a job file"),
];

/// Terraform has these; in Nomad a file that calls one is no job file.
const OF_TERRAFORM: &[(&str, &str)] = &[
    ("endswith", "write substr(TEXT, -N, -1) == \"END\""),
    ("regex", "use regex_replace"),
    ("regexall", "use regex_replace"),
    ("setsubtract", "write [for x in LIST : x if !contains(OTHERS, x)]"),
    ("setsymmetricdifference", "write two `for` expressions with contains(), and setunion() of them"),
    ("startswith", "write substr(TEXT, 0, N) == \"START\""),
    ("sum", "write the sum: a + b"),
    ("templatefile", "use file() and a template stanza"),
    ("timestamp", "uuidv4() also makes each submission another job; or give the time as a variable"),
    ("tolist", "write convert(SET, list(string))"),
    ("tonumber", "write convert(TEXT, number)"),
    ("toset", "write convert(LIST, set(string))"),
    ("tostring", "write convert(VALUE, string)"),
];

/// Where they take or give less than Nomad's, or more than a value.
const REMARKS: &[(&str, &str)] = &[
    ("abspath", "a relative path begins at the working directory of the command"),
    ("can", "whether all of its arguments have a value"),
    ("convert", "a value and a type"),
    ("file", "at most 256 KiB, read by the command with the rights of its user"),
    ("filebase64", "at most 256 KiB, read by the command with the rights of its user"),
    ("fileexists", "answered by the command with the rights of its user"),
    ("fileset", "a set of at most 1,000 files, found by the command with the rights of its user"),
    ("pathexpand", "without `~`"),
    ("range", "at most 1,024 elements"),
    ("setintersection", "a set: sorted, no element twice, no index"),
    ("setproduct", "at most 10,000 elements; a set where all arguments are sets"),
    ("setunion", "a set: sorted, no element twice, no index"),
    ("try", "the first argument that has a value"),
    ("uuidv4", "another value, and so another job, at each submission"),
];

/// Of each function that Nomad documents: its name, the number of its arguments, and a remark. `None`: it is not
/// supported, and the remark says why. In order.
pub fn documented() -> Vec<(&'static str, Option<String>, &'static str)> {
    let remark = |name: &str| REMARKS.iter().find(|(of, _)| *of == name).map_or("", |(_, remark)| remark);
    let own = ALL.iter().flat_map(|of| of.iter()).map(|function| (function.name, function.arguments));
    let own = own.chain([("can", (1, ANY)), ("convert", (2, 2)), ("try", (1, ANY))]);
    let mut all: Vec<_> = own.map(|(name, arguments)| (name, Some(count(arguments)), remark(name))).collect();
    all.extend(ABSENT.iter().map(|(name, why)| (*name, None, *why)));
    all.sort_unstable();
    all
}

/// Functions that a file for Terraform calls, and what to write instead.
pub fn of_terraform() -> &'static [(&'static str, &'static str)] {
    OF_TERRAFORM
}

/// All that can be called, in order.
pub fn names() -> Vec<&'static str> {
    let mut names: Vec<&str> = ALL.iter().flat_map(|of| of.iter().map(|function| function.name)).collect();
    names.extend(["can", "convert", "try"]);
    names.sort_unstable();
    names
}

pub(super) fn call(name: &str, arguments: &[HclValue], outside: &dyn ExternalInputs, span: &Span) -> Evaluated {
    let Some(function) = ALL.iter().flat_map(|of| of.iter()).find(|function| function.name == name) else {
        return Err(unknown(name, span));
    };
    let (least, most) = function.arguments;
    if !(least..=most).contains(&arguments.len()) {
        let message = format!("{name}() takes {} arguments, not {}", count(function.arguments), arguments.len());
        return Err(EvaluationFault::new(span.clone(), message));
    }
    let outcome = match function.call {
        HclFunctionBody::Pure(call) => call(arguments),
        HclFunctionBody::External(call) => call(arguments, outside),
    };
    outcome.map_err(|why| {
        let fault = EvaluationFault::new(span.clone(), format!("{name}(): {why}"));
        match REMARKS.iter().find(|(of, _)| *of == name) {
            Some((_, remark)) => fault.advise(*remark),
            None => fault,
        }
    })
}

fn count((least, most): (usize, usize)) -> String {
    match (least, most) {
        (least, ANY) => format!("at least {least}"),
        (least, most) if least == most => least.to_string(),
        (least, most) => format!("{least} to {most}"),
    }
}

fn unknown(name: &str, span: &Span) -> EvaluationFault {
    if let Some((_, advice)) = ABSENT.iter().find(|(absent, _)| *absent == name) {
        return EvaluationFault::new(span.clone(), format!("{name}() is not supported")).advise(*advice);
    }
    let fault = EvaluationFault::new(span.clone(), format!("there is no function {name}()"));
    if let Some((_, advice)) = OF_TERRAFORM.iter().find(|(absent, _)| *absent == name) {
        return fault.advise(format!("Nomad has none of that name: {advice}"));
    }
    match nearest(name, names()) {
        Some(close) => fault.advise(format!("did you mean {close}()?")),
        None => fault,
    }
}
