//! IDs of traces and spans. They follow from their alloc, task and attempt: a recovered alloc keeps its trace, a task
//! has its ID before its span is sent, and an exemplar leads to the trace of its alloc without any record.
//!
//! Source: W3C Trace Context, "traceparent".

use std::fmt;

use uuid::Uuid;

use super::id::{AllocId, TaskName};

/// That of an alloc is its ID, which has as many bits. Each attempt of a task has its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TraceId(pub [u8; 16]);

/// Never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpanId(pub [u8; 8]);

impl TraceId {
    pub fn of(alloc: &AllocId) -> TraceId {
        TraceId(*Uuid::parse_str(alloc.as_str()).unwrap_or(Uuid::from_u128(hash(&[alloc.as_str()]))).as_bytes())
    }
    /// The trace of one attempt. `attempt`: counted from 0 over all lives.
    pub fn attempt(alloc: &AllocId, task: &TaskName, attempt: u32) -> TraceId {
        let words = [alloc.as_str(), "trace", task.as_str(), "attempt", &attempt.to_string()];
        TraceId(hash(&words).max(1).to_be_bytes())
    }
}

impl SpanId {
    /// Of what stands at this place in the trace of an alloc.
    pub fn of(alloc: &AllocId, place: &[&str]) -> SpanId {
        let words: Vec<&str> = [alloc.as_str()].into_iter().chain(place.iter().copied()).collect();
        let [.., a, b, c, d, e, f, g, h] = hash(&words).max(1).to_be_bytes();
        let id = [a, b, c, d, e, f, g, h];
        SpanId(if id == [0; 8] { [1; 8] } else { id })
    }
    /// The root of the trace of an alloc.
    pub fn submit(alloc: &AllocId) -> SpanId {
        SpanId::of(alloc, &["submit"])
    }
    /// Of the alloc as a whole. `life`: how often all its tasks have begun again.
    pub fn alloc(alloc: &AllocId, life: u32) -> SpanId {
        SpanId::of(alloc, &["alloc", &life.to_string()])
    }
    /// `attempt`: counted from 0 over all lives.
    pub fn attempt(alloc: &AllocId, task: &TaskName, attempt: u32) -> SpanId {
        SpanId::of(alloc, &["task", task.as_str(), "attempt", &attempt.to_string()])
    }
}

/// The `traceparent` of a task, so that its own spans are children of its attempt's. Flags: sampled.
pub fn traceparent(alloc: &AllocId, task: &TaskName, attempt: u32) -> String {
    format!("00-{}-{}-01", TraceId::attempt(alloc, task, attempt), SpanId::attempt(alloc, task, attempt))
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// FNV-1a, 128 bits.
fn hash(words: &[&str]) -> u128 {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let bytes = words.iter().flat_map(|word| word.bytes().chain([0xFF]));
    bytes.fold(OFFSET, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_of_an_alloc_is_its_id_and_each_attempt_has_its_own() {
        let alloc = AllocId::from("6f1c2f3e-5b0a-4c1d-9a57-2d0c3b4a5e61");
        let task = TaskName::from("web");
        assert_eq!(TraceId::of(&alloc).to_string(), "6f1c2f3e5b0a4c1d9a572d0c3b4a5e61");
        let text = traceparent(&alloc, &task, 2);
        let parts: Vec<&str> = text.split('-').collect();
        assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [2, 32, 16, 2]);
        assert_eq!(parts[1], TraceId::attempt(&alloc, &task, 2).to_string());
        let traces = [0, 1, 2].map(|attempt| TraceId::attempt(&alloc, &task, attempt));
        assert!(traces[0] != traces[1] && traces[1] != traces[2] && !traces.contains(&TraceId::of(&alloc)));
        assert_eq!(parts[2], SpanId::attempt(&alloc, &task, 2).to_string());
        // Later agents must say the same.
        assert_eq!(SpanId::attempt(&alloc, &task, 2).to_string(), "3d0bb981bedb80a6");
    }

    #[test]
    fn each_place_in_a_trace_has_an_id_of_its_own() {
        let allocs = ["6f1c2f3e-5b0a-4c1d-9a57-2d0c3b4a5e61", "no uuid", ""].map(AllocId::from);
        let mut all: Vec<SpanId> = Vec::new();
        for alloc in &allocs {
            all.extend((0..20).map(|life| SpanId::alloc(alloc, life)));
            for task in ["a", "b", "a1"].map(TaskName::from) {
                all.extend((0..200).map(|attempt| SpanId::attempt(alloc, &task, attempt)));
            }
        }
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
        assert_ne!(TraceId::of(&allocs[1]), TraceId::of(&allocs[2]));
    }
}
