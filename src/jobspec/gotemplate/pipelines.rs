//! Parses pipelines: declarations, commands and operands.

use std::ops::Range;

use super::fault::UnlocatedFault;
use super::functions;
use super::lexer::TokenKind;
use super::literals;
use super::meter::{self, Checked};
use super::parser::TemplateParser;
use super::tree::{Operand, OperandKind, Pipeline, PipelineCommand};
use super::value::TemplateValue;

impl TemplateParser<'_> {
    pub(super) fn pipeline(&mut self, context: &str, end: TokenKind) -> Checked<Pipeline> {
        let start = self.peek_solid().2;
        let (variables, is_assignment) = self.declarations(context)?;
        // Go has them in scope from here on, and checks assignments when it executes them.
        if !is_assignment {
            self.variables.extend(variables.iter().cloned());
        }
        let mut commands = Vec::new();
        loop {
            if self.peek_solid().0 == end {
                break;
            }
            let command = self.command(context)?;
            self.check_calls(&command, commands.last())?;
            commands.push(command);
            // Go ignores a | before the end.
            if self.peek_solid().0 == TokenKind::Pipe {
                self.next += 1;
            } else if self.peek().0 != end {
                return self.unexpected(context);
            }
        }
        let span = start.start..self.at(self.next.saturating_sub(1)).2.end.max(start.start);
        if commands.is_empty() {
            return Err(UnlocatedFault::new(start, format!("missing value for {context}")));
        }
        for (at, command) in commands.iter().enumerate().skip(1) {
            let Some(Operand { kind, span }) = command.operands.first() else { continue };
            if matches!(kind, OperandKind::Literal(_) | OperandKind::Dot | OperandKind::Nil) {
                let message = format!("stage {} of the pipeline is a value, not a function", at + 1);
                return Err(UnlocatedFault::new(span.clone(), message));
            }
        }
        Ok(Pipeline { variables, is_assignment, commands, span })
    }

    fn declarations(&mut self, context: &str) -> Checked<(Vec<String>, bool)> {
        let mut variables: Vec<String> = Vec::new();
        let start = self.next;
        loop {
            let (kind, name, _) = self.peek_solid();
            if kind != TokenKind::Variable {
                if !variables.is_empty() {
                    return self.unexpected("a declaration, which takes variables");
                }
                return Ok((variables, false));
            }
            self.next += 1;
            variables.push(name.to_owned());
            match self.peek_solid().0 {
                TokenKind::Declare => {
                    self.next += 1;
                    return Ok((variables, false));
                }
                TokenKind::Assign => {
                    self.next += 1;
                    return Ok((variables, true));
                }
                TokenKind::Comma if context == "range" && variables.len() < 2 => self.next += 1,
                TokenKind::Comma => {
                    let span = self.peek().2;
                    return Err(UnlocatedFault::new(span, format!("{context} takes no list of variables here")));
                }
                _ => {
                    // A value, no declaration.
                    self.next = start;
                    return match variables.len() {
                        1 => Ok((Vec::new(), false)),
                        _ => self.unexpected("range, which needs := after its variables"),
                    };
                }
            }
        }
    }

    fn variable(&self, name: &str, span: &Range<usize>) -> Checked {
        match self.variables.iter().any(|known| known == name) {
            true => Ok(()),
            false => Err(UnlocatedFault::new(span.clone(), format!("undefined variable {name}"))),
        }
    }

    fn command(&mut self, context: &str) -> Checked<PipelineCommand> {
        let start = self.peek_solid().2.start;
        let mut operands: Vec<Operand> = Vec::new();
        loop {
            let before = self.next;
            self.skip_space();
            let is_separate = self.next > before || operands.is_empty();
            match self.peek().0 {
                TokenKind::Pipe | TokenKind::Right | TokenKind::RightParenthesis => break,
                _ if is_separate => operands.push(self.operand(context)?),
                _ => return self.unexpected("an operand"),
            }
        }
        let end = operands.last().map_or(start, |operand| operand.span.end);
        if operands.is_empty() {
            return self.unexpected(context);
        }
        Ok(PipelineCommand { operands, span: start..end })
    }

    /// The functions whose arguments are all written out, as the interpreter calls them: what the command before it
    /// yields is the last argument of the first one.
    fn check_calls(&mut self, command: &PipelineCommand, before: Option<&PipelineCommand>) -> Checked {
        let Some((first, arguments)) = command.operands.split_first() else { return Ok(()) };
        if let OperandKind::Function(name) = &first.kind {
            // A command of several operands is a call, and its value is known when it is rendered.
            let piped = before.map(|before| match before.operands.as_slice() {
                [one] => text(one),
                _ => None,
            });
            let texts: Option<Vec<&str>> = arguments.iter().map(text).chain(piped).collect();
            if let Some(texts) = texts {
                let place = arguments.first().unwrap_or(first);
                functions::check_texts(name, &texts, &place.span).or_else(|wrong| self.report(wrong))?;
            }
        } else {
            self.check_alone(first)?;
        }
        arguments.iter().try_for_each(|argument| self.check_alone(argument))
    }

    /// A function that is called as an operand has no argument.
    fn check_alone(&mut self, operand: &Operand) -> Checked {
        let called = if let OperandKind::Chain(inside, _) = &operand.kind { inside } else { operand };
        match &called.kind {
            OperandKind::Function(name) => {
                functions::check_texts(name, &[], &called.span).or_else(|wrong| self.report(wrong))
            }
            _ => Ok(()),
        }
    }

    fn operand(&mut self, context: &str) -> Checked<Operand> {
        // Each operand may cost a look at all variables.
        meter::in_time(self.deadline, &self.peek().2)?;
        let term = self.term(context)?;
        let mut fields = Vec::new();
        let mut end = term.span.end;
        while let (TokenKind::Field, field, span) = self.peek() {
            fields.push(field.trim_start_matches('.').to_owned());
            end = span.end;
            self.next += 1;
        }
        if fields.is_empty() {
            return Ok(term);
        }
        let span = term.span.start..end;
        let kind = match term.kind {
            OperandKind::Field(first) => OperandKind::Field(first.into_iter().chain(fields).collect()),
            OperandKind::Variable(name, _) => OperandKind::Variable(name, fields),
            OperandKind::Function(_) | OperandKind::Pipeline(_) => OperandKind::Chain(Box::new(term), fields),
            OperandKind::Literal(_) | OperandKind::Dot | OperandKind::Nil | OperandKind::Chain(..) => {
                return Err(UnlocatedFault::new(span, "a field follows a value that has none"));
            }
        };
        Ok(Operand { kind, span })
    }

    fn term(&mut self, context: &str) -> Checked<Operand> {
        let (kind, text, span) = self.peek();
        let literal = |value: Result<TemplateValue, String>| {
            value.map(OperandKind::Literal).map_err(|why| UnlocatedFault::new(span.clone(), why))
        };
        let kind = match kind {
            TokenKind::Identifier => match text {
                "true" | "false" => OperandKind::Literal(TemplateValue::Bool(text == "true")),
                "nil" => OperandKind::Nil,
                "if" | "else" | "end" | "range" | "with" | "define" | "block" | "template" => {
                    return self.unexpected(context);
                }
                name => {
                    // `break` and `continue` are functions of no name, too.
                    if let Err(wrong) = functions::check(name, &span) {
                        self.report(wrong)?;
                    }
                    if let Some(kind) = functions::reads(name) {
                        self.reads.entry(name.to_owned()).or_insert((kind, span.clone()));
                    }
                    OperandKind::Function(name.to_owned())
                }
            },
            TokenKind::Field => OperandKind::Field(vec![text.trim_start_matches('.').to_owned()]),
            TokenKind::Variable => {
                self.variable(text, &span)?;
                OperandKind::Variable(text.to_owned(), Vec::new())
            }
            TokenKind::Dot => OperandKind::Dot,
            TokenKind::Number => literal(literals::number(text))?,
            TokenKind::Character => literal(literals::character(text))?,
            TokenKind::Quoted => literal(literals::quoted(text).map(TemplateValue::from))?,
            TokenKind::Raw => literal(Ok(text.trim_matches('`').replace('\r', "").into()))?,
            TokenKind::LeftParenthesis => {
                self.next += 1;
                let inside = self.deeper(&span, |parser| {
                    let scope = parser.variables.len();
                    let inside = parser.pipeline("parentheses", TokenKind::RightParenthesis);
                    parser.variables.truncate(scope);
                    inside
                })?;
                let closed = self.take_solid().2;
                let kind = OperandKind::Pipeline(Box::new(inside));
                return Ok(Operand { kind, span: span.start..closed.end });
            }
            _ => return self.unexpected(context),
        };
        self.next += 1;
        Ok(Operand { kind, span })
    }
}

/// One that is written out.
fn text(operand: &Operand) -> Option<&str> {
    match &operand.kind {
        OperandKind::Literal(TemplateValue::Text(text)) => Some(text),
        _ => None,
    }
}
