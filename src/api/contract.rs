//! What an endpoint takes and answers, as data: the server checks requests by it, and `/v1/openapi.json` is made from
//! it.

use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::error::ApiError;
use super::target::Query;

/// A parameter of a query.
#[derive(Debug)]
pub struct Parameter {
    pub name: &'static str,
    /// A sentence.
    pub about: &'static str,
}

impl Parameter {
    pub(super) const fn new(name: &'static str, about: &'static str) -> Parameter {
        Parameter { name, about }
    }
}

/// What a query may hold.
#[derive(Debug)]
pub enum QueryRule {
    /// Whatever it holds is ignored.
    Ignored,
    /// Each of these once at most, and no other.
    Once(&'static [Parameter]),
    /// Each of these as often as one likes, and no other.
    Repeated(&'static [Parameter]),
}

impl QueryRule {
    pub(super) const NONE: QueryRule = QueryRule::Once(&[]);

    pub fn parameters(&self) -> &'static [Parameter] {
        match self {
            QueryRule::Ignored => &[],
            QueryRule::Once(all) | QueryRule::Repeated(all) => all,
        }
    }

    /// Errors: it holds what it may not.
    pub(super) fn check(&self, query: &Query) -> Result<(), ApiError> {
        let names = || self.parameters().iter().map(|parameter| parameter.name).collect::<Vec<_>>();
        match self {
            QueryRule::Ignored => Ok(()),
            QueryRule::Once(_) => query.only(&names()),
            QueryRule::Repeated(_) => query.any_of(&names()),
        }
    }
}

/// Gives the schema of a type, by reference where it has a name.
pub type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// What a request or an answer carries: of one of these media types.
#[derive(Debug)]
pub struct BodyContract {
    pub kinds: &'static [&'static str],
    /// Of JSON.
    pub schema: Option<SchemaOf>,
    /// A sentence.
    pub about: &'static str,
}

impl BodyContract {
    pub(super) const fn json<T: JsonSchema>(about: &'static str) -> BodyContract {
        BodyContract { kinds: &["application/json"], schema: Some(schema_of::<T>), about }
    }
    pub(super) const fn other(kinds: &'static [&'static str], about: &'static str) -> BodyContract {
        BodyContract { kinds, schema: None, about }
    }
}

/// An answer to a request that was not refused.
#[derive(Debug)]
pub struct EndpointAnswer {
    pub status: u16,
    pub content: BodyContract,
}

impl EndpointAnswer {
    /// 200 with JSON.
    pub(super) const fn json<T: JsonSchema>() -> EndpointAnswer {
        EndpointAnswer::json_as::<T>(200, "The answer")
    }
    pub(super) const fn json_as<T: JsonSchema>(status: u16, about: &'static str) -> EndpointAnswer {
        EndpointAnswer { status, content: BodyContract::json::<T>(about) }
    }
    /// 200 with one of these media types.
    pub(super) const fn other(kinds: &'static [&'static str], about: &'static str) -> EndpointAnswer {
        EndpointAnswer { status: 200, content: BodyContract::other(kinds, about) }
    }
}
