//! The protocol between a Nomad client and a device plugin, for both sides: HashiCorp's go-plugin, gRPC above it, and
//! Nomad's services on top.
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
//! Source: `hashicorp/go-plugin` (docs/internals.md), `hashicorp/nomad` (plugins/base/proto, plugins/device/proto).
//! Field names and numbers are Nomad's; the text is this project's.

pub(super) mod certificate;
pub(super) mod frames;
pub(super) mod handshake;
pub(super) mod messages;
pub(super) mod methods;

/// Larger messages are rejected, as in Nomad's library.
pub(super) const MOST_BYTES: usize = 4 << 20;
