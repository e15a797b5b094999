//! What makes a job periodic or parameterized, and what its children have of their launch.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::id::JobId;
use super::words;

/// How a job is launched: at once, or as the child of a job that launches it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobLaunching {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub periodic: Option<Box<Periodic>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameterized: Option<Box<Parameterized>>,
    /// Of a child: who launched it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<Box<ChildJob>>,
}

impl JobLaunching {
    /// The metadata that tasks may refer to: a dispatch brings some of it.
    pub fn known_meta(&self, meta: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let mut known = meta.clone();
        for key in self.parameterized.iter().flat_map(|launching| launching.keys()) {
            known.entry(key.clone()).or_default();
        }
        known
    }
}

/// Launched by the clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Periodic {
    /// `false`: neither the clock nor a request launches it.
    pub enabled: bool,
    /// Cron expressions: due when any of them is.
    pub crons: Vec<String>,
    /// No launch while a child runs.
    #[serde(default)]
    pub prohibit_overlap: bool,
    /// An IANA name, `UTC` or `Local`.
    pub time_zone: String,
}

/// Launched by requests that bring parameters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Parameterized {
    pub payload: PayloadRule,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub meta_required: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub meta_optional: Vec<String>,
}

words! {
    /// Whether a dispatch brings a payload.
    #[derive(Default)]
    pub enum PayloadRule {
        #[default]
        Optional = "optional",
        Required = "required",
        Forbidden = "forbidden",
    }
}

/// What a child has of its launch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildJob {
    pub parent: JobId,
    /// The job at the top of its line: its usage and its exits count as that job's.
    pub workload: JobId,
    /// Base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
    /// The dispatch's idempotency token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// A payload's limit, in bytes: Nomad's.
pub const MAX_PAYLOAD_BYTES: usize = 16 << 10;
/// It is kept with the child.
pub const MAX_TOKEN_BYTES: usize = 256;

/// What a dispatch brings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DispatchParameters {
    pub payload: Option<DispatchPayload>,
    pub meta: BTreeMap<String, String>,
    pub token: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DispatchPayload {
    pub base64: String,
    /// Of what it encodes.
    pub bytes: usize,
}

/// Why a dispatch is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DispatchRefusal {
    #[error("the job is not parameterized: `allostat run` starts it")]
    NotParameterized,
    #[error("the job requires a payload, and the dispatch has none")]
    PayloadMissing,
    #[error("the job forbids a payload, and the dispatch has one")]
    PayloadForbidden,
    #[error("the payload has {bytes} bytes; the limit is {MAX_PAYLOAD_BYTES}")]
    PayloadTooLarge { bytes: usize },
    #[error("the dispatch lacks required metadata: {}", .0.join(", "))]
    MetaMissing(Vec<String>),
    #[error("the dispatch has metadata that the job does not permit: {}", .0.join(", "))]
    MetaUnknown(Vec<String>),
    #[error("the idempotency token has {bytes} bytes; the limit is {MAX_TOKEN_BYTES}")]
    TokenTooLong { bytes: usize },
    /// What the metadata makes of a text of the job.
    #[error("{0}")]
    TooLong(String),
}

impl DispatchRefusal {
    /// The field of the request that is wrong.
    pub fn field(&self) -> Option<&'static str> {
        match self {
            DispatchRefusal::NotParameterized | DispatchRefusal::TokenTooLong { .. } => None,
            DispatchRefusal::PayloadMissing
            | DispatchRefusal::PayloadForbidden
            | DispatchRefusal::PayloadTooLarge { .. } => Some("Payload"),
            DispatchRefusal::MetaMissing(_) | DispatchRefusal::MetaUnknown(_) | DispatchRefusal::TooLong(_) => {
                Some("Meta")
            }
        }
    }
}

impl Parameterized {
    /// Every key that a dispatch may bring.
    pub fn keys(&self) -> impl Iterator<Item = &String> {
        self.meta_required.iter().chain(&self.meta_optional)
    }

    /// Errors: the parameters are not those that the job asks for.
    pub fn check(&self, given: &DispatchParameters) -> Result<(), DispatchRefusal> {
        match (&given.payload, self.payload) {
            (None, PayloadRule::Required) => return Err(DispatchRefusal::PayloadMissing),
            (Some(_), PayloadRule::Forbidden) => return Err(DispatchRefusal::PayloadForbidden),
            (Some(payload), PayloadRule::Optional | PayloadRule::Required) if payload.bytes > MAX_PAYLOAD_BYTES => {
                return Err(DispatchRefusal::PayloadTooLarge { bytes: payload.bytes });
            }
            (None, PayloadRule::Optional | PayloadRule::Forbidden)
            | (Some(_), PayloadRule::Optional | PayloadRule::Required) => {}
        }
        if let Some(bytes) = given.token.as_ref().map(String::len).filter(|bytes| *bytes > MAX_TOKEN_BYTES) {
            return Err(DispatchRefusal::TokenTooLong { bytes });
        }
        let is_known = |key: &&String| self.keys().any(|known| known == *key);
        let unknown: Vec<String> = given.meta.keys().filter(|key| !is_known(key)).cloned().collect();
        if !unknown.is_empty() {
            return Err(DispatchRefusal::MetaUnknown(unknown));
        }
        let missing = self.meta_required.iter().filter(|key| !given.meta.contains_key(*key));
        let missing: Vec<String> = missing.cloned().collect();
        if missing.is_empty() { Ok(()) } else { Err(DispatchRefusal::MetaMissing(missing)) }
    }
}
