//! HCL2 expressions: variables, locals, operators, conditionals, `for`, splats, templates and functions, within a
//! budget of steps and bytes.
//!
//! ```text
//! variables  `variable` blocks                      locals     `locals` blocks
//! secrets    values of sensitive variables          recorded   what a command read, for the agent
//! inputs     values from outside of the file        constants  what stands for itself
//! scope      names, expressions, templates          operators  arithmetic, comparison, logic
//! functions  one table, a file for each subject     value      kinds and how they turn into each other
//! basis      faults, budget, what is outside        declarations  the form of `variable` and `locals` blocks
//! ```
//! What only a task's start knows passes through as text: `${NOMAD_...}`, `${attr...}`, `${node...}`, `${meta...}`,
//! `${env...}`, `${device...}`. Nothing here reads a file: [`basis::ExternalInputs`] does, with the rights of its
//! caller.

pub mod basis;
mod constants;
mod declarations;
pub mod functions;
pub mod inputs;
mod locals;
mod members;
mod operators;
pub mod recorded;
mod references;
pub mod scope;
mod secrets;
mod types;
pub mod value;
pub mod variables;

#[cfg(test)]
mod tests;
