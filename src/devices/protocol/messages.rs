//! The protobuf messages, written by hand, so that no protobuf compiler is needed. Conversion to model values:
//! `external::report`, `served::answer`.
//!
//! Source: `plugins/base/proto/base.proto`, `plugins/device/proto/device.proto`,
//! `plugins/shared/structs/proto/{attribute,stats}.proto`, `plugins/shared/hclspec/hcl_spec.proto` of Nomad 1.x;
//! go-plugin's `grpc_stdio.proto`; gRPC's `health.proto`.

use std::collections::BTreeMap;

use prost::{Message, Oneof};

macro_rules! messages {
    ($($(#[$about:meta])* $name:ident { $($(#[$field_about:meta])* $field:ident: $type:ty,)* })*) => {
        $($(#[$about])*
        #[derive(Clone, PartialEq, Message)]
        pub(in crate::devices) struct $name { $($(#[$field_about])* pub $field: $type,)* })*
    };
}

messages! {
    Empty {}
    HealthRequest {
        #[prost(string, tag = "1")]
        service: String,
    }
    HealthAnswer {
        /// 1: it serves.
        #[prost(int32, tag = "1")]
        status: i32,
    }
    StdioData {
        /// 1: standard output, 2: standard error.
        #[prost(int32, tag = "1")]
        channel: i32,
        #[prost(bytes = "vec", tag = "2")]
        data: Vec<u8>,
    }
    PluginInfo {
        /// 3: device plugin.
        #[prost(int32, tag = "1")]
        kind: i32,
        #[prost(string, repeated, tag = "2")]
        api_versions: Vec<String>,
        #[prost(string, tag = "3")]
        version: String,
        #[prost(string, tag = "4")]
        name: String,
    }
    ConfigSchema {
        #[prost(message, optional, tag = "1")]
        spec: Option<Spec>,
    }
    SetConfig {
        #[prost(bytes = "vec", tag = "1")]
        msgpack: Vec<u8>,
        #[prost(message, optional, tag = "2")]
        client: Option<ClientConfig>,
        #[prost(string, tag = "3")]
        api_version: String,
    }
    ClientConfig {
        #[prost(message, optional, tag = "1")]
        driver: Option<ClientDriverConfig>,
    }
    ClientDriverConfig {
        #[prost(uint32, tag = "1")]
        max_port: u32,
        #[prost(uint32, tag = "2")]
        min_port: u32,
    }
    FingerprintAnswer {
        #[prost(message, repeated, tag = "1")]
        device_group: Vec<Group>,
    }
    Group {
        #[prost(string, tag = "1")]
        vendor: String,
        #[prost(string, tag = "2")]
        device_type: String,
        #[prost(string, tag = "3")]
        device_name: String,
        #[prost(message, repeated, tag = "4")]
        devices: Vec<Detected>,
        #[prost(btree_map = "string, message", tag = "5")]
        attributes: BTreeMap<String, Fact>,
    }
    Detected {
        #[prost(string, tag = "1")]
        id: String,
        #[prost(bool, tag = "2")]
        healthy: bool,
        #[prost(string, tag = "3")]
        health_description: String,
        #[prost(message, optional, tag = "4")]
        hw_locality: Option<Locality>,
    }
    Locality {
        #[prost(string, tag = "1")]
        pci_bus_id: String,
    }
    Fact {
        #[prost(oneof = "FactValue", tags = "1, 2, 3, 4")]
        value: Option<FactValue>,
        #[prost(string, tag = "5")]
        unit: String,
    }
    ReserveRequest {
        #[prost(string, repeated, tag = "1")]
        device_ids: Vec<String>,
    }
    ReserveAnswer {
        #[prost(message, optional, tag = "1")]
        container_res: Option<Container>,
    }
    Container {
        #[prost(btree_map = "string, string", tag = "1")]
        envs: BTreeMap<String, String>,
        #[prost(message, repeated, tag = "2")]
        mounts: Vec<Mount>,
        #[prost(message, repeated, tag = "3")]
        devices: Vec<Node>,
    }
    Mount {
        #[prost(string, tag = "1")]
        task_path: String,
        #[prost(string, tag = "2")]
        host_path: String,
        #[prost(bool, tag = "3")]
        read_only: bool,
    }
    Node {
        #[prost(string, tag = "1")]
        task_path: String,
        #[prost(string, tag = "2")]
        host_path: String,
        #[prost(string, tag = "3")]
        permissions: String,
    }
    StatsRequest {
        #[prost(message, optional, tag = "1")]
        collection_interval: Option<Interval>,
    }
    /// `google.protobuf.Duration`
    Interval {
        #[prost(int64, tag = "1")]
        seconds: i64,
        #[prost(int32, tag = "2")]
        nanos: i32,
    }
    /// `google.protobuf.Timestamp`
    Moment {
        #[prost(int64, tag = "1")]
        seconds: i64,
        #[prost(int32, tag = "2")]
        nanos: i32,
    }
    StatsAnswer {
        #[prost(message, repeated, tag = "1")]
        groups: Vec<GroupStats>,
    }
    GroupStats {
        #[prost(string, tag = "1")]
        vendor: String,
        #[prost(string, tag = "2")]
        kind: String,
        #[prost(string, tag = "3")]
        name: String,
        #[prost(btree_map = "string, message", tag = "4")]
        instance_stats: BTreeMap<String, InstanceStats>,
    }
    InstanceStats {
        #[prost(message, optional, tag = "1")]
        summary: Option<Stat>,
        #[prost(message, optional, tag = "2")]
        stats: Option<Stats>,
        #[prost(message, optional, tag = "3")]
        timestamp: Option<Moment>,
    }
    Stats {
        #[prost(btree_map = "string, message", tag = "1")]
        nested: BTreeMap<String, Stats>,
        #[prost(btree_map = "string, message", tag = "2")]
        attributes: BTreeMap<String, Stat>,
    }
    /// Wrapped values (`google.protobuf.DoubleValue` and similar): unset differs from 0.
    Stat {
        #[prost(message, optional, tag = "1")]
        float_numerator: Option<f64>,
        #[prost(message, optional, tag = "2")]
        float_denominator: Option<f64>,
        #[prost(message, optional, tag = "3")]
        int_numerator: Option<i64>,
        #[prost(message, optional, tag = "4")]
        int_denominator: Option<i64>,
        #[prost(message, optional, tag = "5")]
        text: Option<String>,
        #[prost(message, optional, tag = "6")]
        bool: Option<bool>,
        #[prost(string, tag = "7")]
        unit: String,
        #[prost(string, tag = "8")]
        desc: String,
    }
    /// Schema of a plugin's configuration.
    Spec {
        #[prost(oneof = "SpecKind", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10")]
        kind: Option<SpecKind>,
    }
    SpecObject {
        #[prost(btree_map = "string, message", tag = "1")]
        attributes: BTreeMap<String, Spec>,
    }
    SpecArray {
        #[prost(message, repeated, tag = "1")]
        values: Vec<Spec>,
    }
    SpecAttr {
        #[prost(string, tag = "1")]
        name: String,
        #[prost(string, tag = "2")]
        of: String,
        #[prost(bool, tag = "3")]
        required: bool,
    }
    SpecBlock {
        #[prost(string, tag = "1")]
        name: String,
        #[prost(bool, tag = "2")]
        required: bool,
        #[prost(message, optional, boxed, tag = "3")]
        nested: Option<Box<Spec>>,
    }
    /// A list, set or map of blocks, or the attributes of a block: only the name matters here.
    SpecNamed {
        #[prost(string, tag = "1")]
        name: String,
    }
    SpecDefault {
        #[prost(message, optional, boxed, tag = "1")]
        primary: Option<Box<Spec>>,
        #[prost(message, optional, boxed, tag = "2")]
        default: Option<Box<Spec>>,
    }
    SpecLiteral {
        #[prost(string, tag = "1")]
        value: String,
    }
}

#[derive(Clone, PartialEq, Oneof)]
pub(in crate::devices) enum FactValue {
    #[prost(double, tag = "1")]
    Float(f64),
    #[prost(int64, tag = "2")]
    Int(i64),
    #[prost(string, tag = "3")]
    Text(String),
    #[prost(bool, tag = "4")]
    Bool(bool),
}

#[derive(Clone, PartialEq, Oneof)]
pub(in crate::devices) enum SpecKind {
    #[prost(message, tag = "1")]
    Object(SpecObject),
    #[prost(message, tag = "2")]
    Array(SpecArray),
    #[prost(message, tag = "3")]
    Attr(SpecAttr),
    #[prost(message, tag = "4")]
    Block(SpecBlock),
    #[prost(message, tag = "5")]
    BlockAttrs(SpecNamed),
    #[prost(message, tag = "6")]
    BlockList(SpecNamed),
    #[prost(message, tag = "7")]
    BlockSet(SpecNamed),
    #[prost(message, tag = "8")]
    BlockMap(SpecNamed),
    #[prost(message, tag = "9")]
    Default(SpecDefault),
    #[prost(message, tag = "10")]
    Literal(SpecLiteral),
}

/// Value of [`PluginInfo`]'s kind.
pub(in crate::devices) const KIND_DEVICE: i32 = 3;
/// Value of [`HealthAnswer`]'s status.
pub(in crate::devices) const SERVING: i32 = 1;
