//! Device plugins of others, over the real protocol: one in Python with grpcio, sound and with each fault; and ours,
//! run by a client like Nomad's.

mod agent;
mod external;
mod served;

pub use self::agent::Plugins;
