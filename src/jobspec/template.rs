//! A text with `${...}` in it, in pieces. What may be referred to and what becomes of it: [`super::interpolate`].

/// A piece of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InterpolationPart<'t> {
    Text(&'t str),
    /// What stands between `${` and `}`, and what it means.
    Reference(&'t str, Result<Target, BadReference>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Variable(String),
    Meta(String),
    /// With its `attr.` or `node.`.
    Attribute(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadReference {
    #[error("HCL functions and expressions are not supported")]
    Expression,
    #[error("HCL variables are not supported")]
    HclVariable,
    #[error("there is nothing of that name")]
    Unknown,
    #[error("the closing `}}` is missing")]
    Unclosed,
}

/// A text that was computed, as a template: what a task's start knows stays a reference, any other `${` stands for
/// itself.
pub fn as_template(text: &str) -> String {
    let is_reference = |after: &str| {
        let reference = end(after).and_then(|end| after.get(..end)).unwrap_or_default().trim();
        match target(reference) {
            Ok(Target::Variable(name)) => name.starts_with("NOMAD_") || reference.starts_with("env"),
            Ok(Target::Meta(_) | Target::Attribute(_)) => true,
            Err(_) => false,
        }
    };
    let mut template = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, after) = (rest.get(..at).unwrap_or_default(), rest.get(at + 2..).unwrap_or_default());
        template.push_str(before);
        template.push_str(if is_reference(after) && !before.ends_with('$') { "${" } else { "$${" });
        rest = after;
    }
    template.push_str(rest);
    template
}

/// The text as its author wrote it: references stay, each `$${` is a `${`. For text that is no template of the job
/// file's own.
pub fn as_written(template: &str) -> String {
    let pieces = parts(template).into_iter().map(|part| match part {
        InterpolationPart::Text(text) => text.to_owned(),
        InterpolationPart::Reference(inside, Err(BadReference::Unclosed)) => format!("${{{inside}"),
        InterpolationPart::Reference(reference, _) => format!("${{{reference}}}"),
    });
    pieces.collect()
}

/// The pieces of a template, in order; joined again they are the template, less the `$` of each `$${`.
pub fn parts(template: &str) -> Vec<InterpolationPart<'_>> {
    let mut parts = Vec::new();
    let mut rest = template;
    while let Some(at) = rest.find("${") {
        let (before, after) = rest.split_at(at);
        let inside = after.get(2..).unwrap_or("");
        if let Some(literal) = before.strip_suffix('$') {
            parts.extend([InterpolationPart::Text(literal), InterpolationPart::Text("${")]);
            rest = inside;
            continue;
        }
        parts.push(InterpolationPart::Text(before));
        match end(inside) {
            Some(end) => {
                let reference = inside.get(..end).unwrap_or("").trim();
                parts.push(InterpolationPart::Reference(reference, target(reference)));
                rest = inside.get(end + 1..).unwrap_or("");
            }
            None => {
                parts.push(InterpolationPart::Reference(inside, Err(BadReference::Unclosed)));
                rest = "";
            }
        }
    }
    parts.push(InterpolationPart::Text(rest));
    parts.retain(|part| *part != InterpolationPart::Text(""));
    parts
}

/// Where the closing brace stands, outside of quotes.
fn end(inside: &str) -> Option<usize> {
    let mut quoted = false;
    for (i, c) in inside.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '}' if !quoted => return Some(i),
            _ => {}
        }
    }
    None
}

fn target(reference: &str) -> Result<Target, BadReference> {
    let is_word = |text: &str| {
        !text.is_empty()
            && text.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-')
            && !text.starts_with(|c: char| c.is_ascii_digit() || c == '-')
    };
    let (base, path) = match reference.find(['.', '[']) {
        Some(at) => reference.split_at(at),
        None => (reference, ""),
    };
    if !is_word(base) {
        return Err(BadReference::Expression);
    }
    let key = match (path.strip_prefix('.'), path.strip_prefix("[\"").and_then(|p| p.strip_suffix("\"]"))) {
        (Some(dotted), _) if dotted.split('.').all(is_word) => Some(dotted),
        (_, Some(key)) if !key.is_empty() && !key.contains('"') => Some(key),
        _ => None,
    };
    match (base, key) {
        (name, None) if path.is_empty() && !matches!(name, "env" | "meta" | "attr" | "node") => {
            Ok(Target::Variable(name.to_owned()))
        }
        ("var" | "local" | "each" | "path", _) => Err(BadReference::HclVariable),
        (_, None) if path.is_empty() => Err(BadReference::Unknown),
        (_, None) => Err(BadReference::Expression),
        ("env", Some(key)) => Ok(Target::Variable(key.to_owned())),
        ("meta", Some(key)) => Ok(Target::Meta(key.to_owned())),
        ("attr" | "node", Some(key)) => Ok(Target::Attribute(format!("{base}.{key}"))),
        // A variable whose name has dots: a template may define one.
        (_, Some(_)) if path.starts_with('.') => Ok(Target::Variable(reference.to_owned())),
        (_, Some(_)) => Err(BadReference::Unknown),
    }
}
