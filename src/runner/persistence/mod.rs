//! What outlives the agent: records and their journal, the timeline, samples, the data directory.

pub mod datadir;
pub mod journal;
pub mod outputs;
pub mod record;
pub mod samples;
pub mod steady_clock;
pub mod update;
