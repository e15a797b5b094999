//! Values of pipelines, commands and operands.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use super::fault::UnlocatedFault;
use super::functions;
use super::interpreter::{Interpreter, TemplateVariables, assign};
use super::meter::Checked;
use super::tree::{Operand, OperandKind, Pipeline, PipelineCommand};
use super::value::TemplateValue;

impl Interpreter<'_> {
    /// The value, with the variables of the pipeline set.
    pub(super) fn pipeline(
        &self,
        pipeline: &Pipeline,
        dot: &TemplateValue,
        variables: &mut TemplateVariables,
    ) -> Checked<TemplateValue> {
        let value = self.value(pipeline, dot, variables)?;
        for name in &pipeline.variables {
            match pipeline.is_assignment {
                true => assign(variables, name, value.clone(), &pipeline.span)?,
                false => variables.push((name.clone(), value.clone())),
            }
        }
        Ok(value)
    }

    fn value(
        &self,
        pipeline: &Pipeline,
        dot: &TemplateValue,
        variables: &mut TemplateVariables,
    ) -> Checked<TemplateValue> {
        self.meter.nested(&pipeline.span, || {
            let mut piped = None;
            for command in &pipeline.commands {
                piped = Some(self.command(command, dot, variables, piped)?);
            }
            piped.ok_or_else(|| UnlocatedFault::new(pipeline.span.clone(), "the pipeline has no value"))
        })
    }

    fn command(
        &self,
        command: &PipelineCommand,
        dot: &TemplateValue,
        variables: &mut TemplateVariables,
        piped: Option<TemplateValue>,
    ) -> Checked<TemplateValue> {
        self.meter.steps(&command.span, 1)?;
        let Some((first, arguments)) = command.operands.split_first() else {
            return Err(UnlocatedFault::new(command.span.clone(), "the command is empty"));
        };
        match &first.kind {
            OperandKind::Function(name) => self.function(name, &first.span, arguments, dot, variables, piped),
            OperandKind::Variable(_, fields) | OperandKind::Field(fields) | OperandKind::Chain(_, fields)
                if !fields.is_empty() =>
            {
                self.fields(first, arguments, dot, variables, piped)
            }
            OperandKind::Nil => Err(UnlocatedFault::new(first.span.clone(), "nil is not a command")),
            _ if piped.is_some() || !arguments.is_empty() => {
                Err(UnlocatedFault::new(first.span.clone(), "a value takes no arguments: it is not a function"))
            }
            _ => self.operand(first, dot, variables),
        }
    }

    pub(super) fn operand(
        &self,
        operand: &Operand,
        dot: &TemplateValue,
        variables: &mut TemplateVariables,
    ) -> Checked<TemplateValue> {
        self.meter.steps(&operand.span, 1)?;
        match &operand.kind {
            OperandKind::Dot => Ok(dot.clone()),
            OperandKind::Nil => Ok(TemplateValue::Nil),
            OperandKind::Literal(value) => Ok(value.clone()),
            OperandKind::Function(name) => self.function(name, &operand.span, &[], dot, variables, None),
            OperandKind::Pipeline(pipeline) => {
                let scope = variables.len();
                let value = self.pipeline(pipeline, dot, variables);
                variables.truncate(scope);
                value
            }
            OperandKind::Variable(name, fields) if fields.is_empty() => variable(variables, name, &operand.span),
            OperandKind::Variable(..) | OperandKind::Field(_) | OperandKind::Chain(..) => {
                self.fields(operand, &[], dot, variables, None)
            }
        }
    }

    /// `.a.b`, `$x.a`, `(pipeline).a` and methods, which are the last field.
    fn fields(
        &self,
        operand: &Operand,
        arguments: &[Operand],
        dot: &TemplateValue,
        variables: &mut TemplateVariables,
        piped: Option<TemplateValue>,
    ) -> Checked<TemplateValue> {
        let (mut value, fields) = match &operand.kind {
            OperandKind::Field(fields) => (dot.clone(), fields),
            OperandKind::Variable(name, fields) => (variable(variables, name, &operand.span)?, fields),
            OperandKind::Chain(inside, fields) => (self.operand(inside, dot, variables)?, fields),
            _ => return Err(UnlocatedFault::new(operand.span.clone(), "this value has no fields")),
        };
        let last = fields.len().saturating_sub(1);
        for (at, field) in fields.iter().enumerate() {
            self.meter.steps(&operand.span, 1)?;
            if at == last && matches!(value, TemplateValue::Scratch) {
                let mut values = Vec::with_capacity(arguments.len() + 1);
                for argument in arguments {
                    values.push(self.operand(argument, dot, variables)?);
                }
                values.extend(piped);
                let result = self.scratch_method(field, &values).map_err(|why| {
                    let wrong = UnlocatedFault::new(operand.span.clone(), format!("scratch.{field}: {why}"));
                    if why == UNKNOWN_METHOD {
                        wrong.advise("it has Key, Get, Set, SetX, MapSet, MapSetX, MapValues")
                    } else {
                        wrong
                    }
                })?;
                self.meter.bytes(&operand.span, result.bytes())?;
                return Ok(result);
            }
            value = self.field(&value, field, &operand.span)?;
        }
        if piped.is_some() || !arguments.is_empty() {
            let name = fields.last().map_or("", String::as_str);
            return Err(UnlocatedFault::new(
                operand.span.clone(),
                format!("{name} takes no arguments: it is not a function"),
            ));
        }
        Ok(value)
    }

    fn field(&self, value: &TemplateValue, field: &str, span: &Range<usize>) -> Checked<TemplateValue> {
        let missing = |what: &str| match self.error_on_missing_key {
            true => Err(UnlocatedFault::new(span.clone(), format!("{what} has no entry for key {field:?}"))),
            false => Ok(TemplateValue::Nil),
        };
        match value {
            TemplateValue::Nil => missing("nil data"),
            TemplateValue::Map(map) => map.entries().get(field).map_or_else(|| missing("the map"), |v| Ok(v.clone())),
            TemplateValue::Pair(pair) => match field {
                "Path" => Ok(pair.path.as_str().into()),
                "Key" => Ok(pair.key.as_str().into()),
                "Value" => Ok(pair.value.as_str().into()),
                "Exists" => Ok(TemplateValue::Bool(true)),
                other => {
                    let wrong = UnlocatedFault::new(span.clone(), format!("a key has no field {other}"));
                    Err(wrong.advise("it has Path, Key, Value"))
                }
            },
            other => Err(UnlocatedFault::new(span.clone(), format!("{} has no field {field}", other.type_name()))),
        }
    }

    fn function(
        &self,
        name: &str,
        span: &Range<usize>,
        arguments: &[Operand],
        dot: &TemplateValue,
        variables: &mut TemplateVariables,
        piped: Option<TemplateValue>,
    ) -> Checked<TemplateValue> {
        if matches!(name, "and" | "or") {
            return self.short_circuit(name, span, arguments, dot, variables, piped);
        }
        let mut values = Vec::with_capacity(arguments.len() + 1);
        for argument in arguments {
            values.push(self.operand(argument, dot, variables)?);
        }
        values.extend(piped);
        match name {
            "scratch" if values.is_empty() => return Ok(TemplateValue::Scratch),
            "executeTemplate" => return self.execute_template(&values, span),
            _ => {}
        }
        functions::call(name, &values, &self.tools, &self.meter, span)
    }

    /// Evaluates arguments only as far as needed, as Go does.
    fn short_circuit(
        &self,
        name: &str,
        span: &Range<usize>,
        arguments: &[Operand],
        dot: &TemplateValue,
        variables: &mut TemplateVariables,
        piped: Option<TemplateValue>,
    ) -> Checked<TemplateValue> {
        let mut last = None;
        for argument in arguments {
            let value = self.operand(argument, dot, variables)?;
            if value.is_true() == (name == "or") {
                return Ok(value);
            }
            last = Some(value);
        }
        piped
            .or(last)
            .ok_or_else(|| UnlocatedFault::new(span.clone(), format!("{name} takes at least 1 argument, not 0")))
    }

    fn execute_template(&self, values: &[TemplateValue], span: &Range<usize>) -> Checked<TemplateValue> {
        let (name, data) = match values {
            [TemplateValue::Text(name)] => (name, TemplateValue::Nil),
            [TemplateValue::Text(name), data] => (name, data.clone()),
            _ => {
                return Err(UnlocatedFault::new(
                    span.clone(),
                    "executeTemplate takes the name of a template and its data",
                ));
            }
        };
        let mut out = String::new();
        self.call(name, data, span, &mut out)?;
        self.meter.bytes(span, out.len())?;
        Ok(out.into())
    }

    fn scratch_method(&self, method: &str, arguments: &[TemplateValue]) -> Result<TemplateValue, String> {
        let text = |at: usize| match arguments.get(at) {
            Some(TemplateValue::Text(text)) => Ok(Rc::clone(text)),
            other => {
                let kind = other.unwrap_or(&TemplateValue::Nil).type_name();
                Err(format!("argument {} must be string, not {kind}", at + 1))
            }
        };
        let takes = |count: usize| match arguments.len() == count {
            true => Ok(()),
            false => Err(format!("takes {count} arguments, not {}", arguments.len())),
        };
        let nothing = || Ok(TemplateValue::from(""));
        let argument = |at: usize| arguments.get(at).cloned().unwrap_or(TemplateValue::Nil);
        match method {
            "Key" => {
                takes(1)?;
                Ok(TemplateValue::Bool(self.scratch.borrow().contains_key(&*text(0)?)))
            }
            "Get" => {
                takes(1)?;
                Ok(self.scratch.borrow().get(&*text(0)?).cloned().unwrap_or(TemplateValue::Nil))
            }
            "Set" | "SetX" => {
                takes(2)?;
                let key = text(0)?;
                if method == "Set" || !self.scratch.borrow().contains_key(&*key) {
                    self.scratch.borrow_mut().insert(key.to_string(), argument(1));
                }
                nothing()
            }
            "MapSet" | "MapSetX" => {
                takes(3)?;
                let (key, inner) = (text(0)?, text(1)?);
                let mut map = self.scratch_map(&key)?;
                if method == "MapSet" || !map.contains_key(&*inner) {
                    map.insert(inner.to_string(), argument(2));
                    self.scratch.borrow_mut().insert(key.to_string(), TemplateValue::map(map)?);
                }
                nothing()
            }
            "MapValues" => {
                takes(1)?;
                TemplateValue::list(self.scratch_map(&text(0)?)?.into_values().collect())
            }
            _ => Err(UNKNOWN_METHOD.to_owned()),
        }
    }

    fn scratch_map(&self, key: &str) -> Result<BTreeMap<String, TemplateValue>, String> {
        match self.scratch.borrow().get(key) {
            None => Ok(BTreeMap::new()),
            Some(TemplateValue::Map(map)) => Ok(map.entries().clone()),
            Some(other) => Err(format!("{key:?} is {}, not a map", other.type_name())),
        }
    }
}

const UNKNOWN_METHOD: &str = "there is no such method";

fn variable(variables: &TemplateVariables, name: &str, span: &Range<usize>) -> Checked<TemplateValue> {
    let found = variables.iter().rev().find(|(known, _)| known == name);
    found
        .map(|(_, value)| value.clone())
        .ok_or_else(|| UnlocatedFault::new(span.clone(), format!("undefined variable {name}")))
}
