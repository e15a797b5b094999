//! The task's environment, files and keys.

use std::rc::Rc;

use super::arguments::{TemplateFunction, TemplateFunctionResult, Tools, boolean, bounded, sourced, text};
use crate::jobspec::gotemplate::fault::FunctionFault;
use crate::jobspec::gotemplate::tree::ReadKind;
use crate::jobspec::gotemplate::value::{TemplateKeyPair, TemplateValue};

pub(super) static FUNCTIONS: &[TemplateFunction] = &[
    sourced("env", (1, 1), |a, tools| Ok(tools.sources.env(&text(a, 0)?).unwrap_or_default().into())),
    sourced("sprig_env", (1, 1), |a, tools| Ok(tools.sources.env(&text(a, 0)?).unwrap_or_default().into())),
    sourced("envOrDefault", (2, 2), |a, tools| match tools.sources.env(&text(a, 0)?) {
        Some(value) => Ok(value.into()),
        None => Ok(TemplateValue::Text(text(a, 1)?)),
    }),
    sourced("mustEnv", (1, 1), |a, tools| {
        let name = text(a, 0)?;
        let value = tools.sources.env(&name).filter(|value| !value.is_empty());
        Ok(value.ok_or_else(|| format!("the environment variable {name:?} is not set"))?.into())
    }),
    sourced("file", (1, 1), |a, tools| match &*text(a, 0)? {
        "" => Ok("".into()),
        path => Ok(tools.sources.file(path)?.into()),
    }),
    sourced("key", (1, 1), |a, tools| match &*text(a, 0)? {
        "" => Ok("".into()),
        path => match value(tools, path)? {
            Some(value) => Ok(value.into()),
            None => Err(FunctionFault::Waits(format!("the key {path:?} does not exist; the template waits for it"))),
        },
    }),
    sourced("keyExists", (1, 1), |a, tools| match &*text(a, 0)? {
        "" => boolean(false),
        path => boolean(value(tools, path)?.is_some()),
    }),
    sourced("keyOrDefault", (2, 2), |a, tools| {
        let path = text(a, 0)?;
        let found = if path.is_empty() { None } else { value(tools, &path)? };
        match found.filter(|value| !value.is_empty()) {
            Some(value) => Ok(value.into()),
            None => Ok(TemplateValue::Text(text(a, 1)?)),
        }
    }),
    sourced("ls", (1, 1), |a, tools| keys(a, tools, true, false)),
    sourced("safeLs", (1, 1), |a, tools| keys(a, tools, true, true)),
    sourced("tree", (1, 1), |a, tools| keys(a, tools, false, false)),
    sourced("safeTree", (1, 1), |a, tools| keys(a, tools, false, true)),
];

/// Whether what it yields can change while the task runs, and whether that is a key.
pub(in crate::jobspec::gotemplate) fn reads(function: &str) -> Option<ReadKind> {
    match function {
        "file" => Some(ReadKind::File),
        "key" | "keyExists" | "keyOrDefault" | "ls" | "safeLs" | "tree" | "safeTree" => Some(ReadKind::Key),
        _ => None,
    }
}

/// Consul names another datacenter behind an @.
fn without_datacenter(path: &str) -> Result<&str, FunctionFault> {
    match path.contains('@') {
        true => Err(format!("{path:?} names another datacenter, and the key tree is of this host").into()),
        false => Ok(path.strip_prefix('/').unwrap_or(path)),
    }
}

fn value(tools: &Tools<'_>, path: &str) -> Result<Option<String>, FunctionFault> {
    Ok(tools.sources.key(without_datacenter(path)?)?)
}

/// The keys below a prefix. `is_flat`: only those directly below. `waits_if_empty`: an empty answer is a fault.
fn keys(arguments: &[TemplateValue], tools: &Tools<'_>, is_flat: bool, waits_if_empty: bool) -> TemplateFunctionResult {
    let written = text(arguments, 0)?;
    if written.is_empty() {
        return Ok(TemplateValue::list(Vec::new())?);
    }
    let prefix = without_datacenter(&written)?.trim_end_matches('/');
    let mut found = Vec::new();
    let mut bytes = 0usize;
    for (path, value) in tools.sources.keys(prefix, is_flat)? {
        let below = match prefix {
            "" => Some(path.as_str()),
            prefix => path.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('/')),
        };
        let Some(key) = below.filter(|key| !key.is_empty() && !key.ends_with('/')) else { continue };
        if is_flat && key.contains('/') {
            continue;
        }
        bytes = bytes.saturating_add(path.len() + key.len() + value.len());
        bounded(bytes)?;
        let key = key.to_owned();
        found.push(TemplateValue::Pair(Rc::new(TemplateKeyPair { path, key, value })));
    }
    if found.is_empty() && waits_if_empty {
        return Err(FunctionFault::Waits(format!("there is no key below {prefix:?}; the template waits for one")));
    }
    Ok(TemplateValue::list(found)?)
}
