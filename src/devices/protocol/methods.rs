//! Paths of the gRPC methods.

pub(in crate::devices) const HEALTH: &str = "/grpc.health.v1.Health/Check";
pub(in crate::devices) const STDIO: &str = "/plugin.GRPCStdio/StreamStdio";
pub(in crate::devices) const BROKER: &str = "/plugin.GRPCBroker/StartStream";
pub(in crate::devices) const SHUTDOWN: &str = "/plugin.GRPCController/Shutdown";
pub(in crate::devices) const INFO: &str = "/hashicorp.nomad.plugins.base.proto.BasePlugin/PluginInfo";
pub(in crate::devices) const SCHEMA: &str = "/hashicorp.nomad.plugins.base.proto.BasePlugin/ConfigSchema";
pub(in crate::devices) const CONFIG: &str = "/hashicorp.nomad.plugins.base.proto.BasePlugin/SetConfig";
pub(in crate::devices) const FINGERPRINT: &str = "/hashicorp.nomad.plugins.device.DevicePlugin/Fingerprint";
pub(in crate::devices) const RESERVE: &str = "/hashicorp.nomad.plugins.device.DevicePlugin/Reserve";
pub(in crate::devices) const STATS: &str = "/hashicorp.nomad.plugins.device.DevicePlugin/Stats";

/// The service name in go-plugin's health checks.
pub(in crate::devices) const HEALTH_OF: &str = "plugin";
/// The only version of Nomad's device plugin API so far.
pub(in crate::devices) const API_VERSION: &str = "v0.1.0";
