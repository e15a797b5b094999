//! The protocol between a Nomad client and a device plugin, as both sides of it need it: HashiCorp's go-plugin below, gRPC in the
//! middle, the services of Nomad on top.
//!
//! ```text
//! client                                                     plugin
//!   starts it; environment: cookie, versions, certificate ──►
//!   ◄── one line on standard output: 1|2|unix|/tmp/plugin1|grpc|certificate
//!   connects, with TLS where there was a certificate ────────►
//!   PluginInfo, ConfigSchema, SetConfig ─────────────────────►
//!   Fingerprint, Stats: streams; Reserve; Health; Shutdown ──►
//! ```
//!
//! Source: `hashicorp/go-plugin` (docs/internals.md), `hashicorp/nomad` (plugins/base/proto, plugins/device/proto). Names and numbers of
//! fields are theirs, the text is ours.

pub(super) mod certificate;
pub(super) mod frames;
pub(super) mod handshake;
pub(super) mod messages;
pub(super) mod methods;

/// A message larger than this is refused, as Nomad's library does.
pub(super) const MOST_BYTES: usize = 4 << 20;
