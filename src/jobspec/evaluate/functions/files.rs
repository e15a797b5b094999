//! Files of the user that submits the job, read by the command with that user's rights.

use std::path::Path;

use super::arguments::{HclFunction, HclFunctionBody, HclFunctionResult, pure, text};
use crate::jobspec::evaluate::basis::ExternalInputs;
use crate::jobspec::evaluate::value::HclValue;

pub(super) static FUNCTIONS: &[HclFunction] = &[
    HclFunction { name: "abspath", arguments: (1, 1), call: HclFunctionBody::External(abspath) },
    pure("pathexpand", (1, 1), |a| {
        let path = text(a, 0)?;
        if path.starts_with('~') {
            return Err("`~` depends on the user that runs the command: write the path from `/` on".to_owned());
        }
        Ok(HclValue::Text(path))
    }),
    pure("basename", (1, 1), |a| {
        let path = text(a, 0)?;
        Ok(Path::new(&path).file_name().and_then(|name| name.to_str()).unwrap_or(".").into())
    }),
    pure("dirname", (1, 1), |a| {
        let path = text(a, 0)?;
        let parent = Path::new(&path).parent().and_then(|parent| parent.to_str()).filter(|parent| !parent.is_empty());
        Ok(parent.unwrap_or(".").into())
    }),
    HclFunction { name: "file", arguments: (1, 1), call: HclFunctionBody::External(file) },
    HclFunction { name: "filebase64", arguments: (1, 1), call: HclFunctionBody::External(filebase64) },
    HclFunction {
        name: "fileexists",
        arguments: (1, 1),
        call: HclFunctionBody::External(|a, outside| outside.exists(&text(a, 0)?).map(HclValue::Bool)),
    },
    HclFunction {
        name: "fileset",
        arguments: (2, 2),
        call: HclFunctionBody::External(|a, outside| {
            let found = outside.list(&text(a, 0)?, &text(a, 1)?)?;
            Ok(HclValue::set(found.into_iter().map(HclValue::Text).collect()))
        }),
    },
];

fn abspath(arguments: &[HclValue], outside: &dyn ExternalInputs) -> HclFunctionResult {
    let given = text(arguments, 0)?;
    let whole = if given.starts_with('/') { given } else { format!("{}/{given}", outside.directory()?) };
    let mut parts: Vec<&str> = Vec::new();
    for part in whole.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    Ok(HclValue::Text(format!("/{}", parts.join("/"))))
}

fn file(arguments: &[HclValue], outside: &dyn ExternalInputs) -> HclFunctionResult {
    let path = text(arguments, 0)?;
    String::from_utf8(outside.read(&path)?).map(HclValue::Text).map_err(|_| format!("{path} is no UTF-8"))
}

fn filebase64(arguments: &[HclValue], outside: &dyn ExternalInputs) -> HclFunctionResult {
    use base64::Engine as _;
    let bytes = outside.read(&text(arguments, 0)?)?;
    Ok(HclValue::Text(base64::engine::general_purpose::STANDARD.encode(bytes)))
}
