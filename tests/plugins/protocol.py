"""The messages and services of Nomad's device plugins, for grpcio: built here by the library of Google, so that both sides of the
tests do not share a mistake of ours."""

from google.protobuf import descriptor_pb2, descriptor_pool, duration_pb2, message_factory, timestamp_pb2, wrappers_pb2

STRUCTS = "hashicorp.nomad.plugins.shared.structs"
SPEC = "hashicorp.nomad.plugins.shared.hclspec"
BASE = "hashicorp.nomad.plugins.base.proto"
DEVICE = "hashicorp.nomad.plugins.device"

# name: type, number; `*` is a list, `{}` a map from text, `|` one of a choice.
TABLE = {
    "plugin": {
        "Empty": "",
        "StdioData": "channel:int32=1 data:bytes=2",
    },
    "grpc.health.v1": {
        "HealthCheckRequest": "service:string=1",
        "HealthCheckResponse": "status:int32=1",
    },
    STRUCTS: {
        "Attribute": "|float_val:double=1 |int_val:int64=2 |string_val:string=3 |bool_val:bool=4 unit:string=5",
        "StatValue": "float_numerator_val:.google.protobuf.DoubleValue=1 float_denominator_val:.google.protobuf.DoubleValue=2 "
        "int_numerator_val:.google.protobuf.Int64Value=3 int_denominator_val:.google.protobuf.Int64Value=4 "
        "string_val:.google.protobuf.StringValue=5 bool_val:.google.protobuf.BoolValue=6 unit:string=7 desc:string=8",
        "StatObject": "nested:{}StatObject=1 attributes:{}StatValue=2",
    },
    SPEC: {
        "Attr": "name:string=1 type:string=2 required:bool=3",
        "Literal": "value:string=1",
        "Default": "primary:Spec=1 default:Spec=2",
        "Object": "attributes:{}Spec=1",
        "Spec": "|object:Object=1 |Attr:.%s.Attr=3 |default:Default=9 |literal:Literal=10" % SPEC,
    },
    BASE: {
        "PluginInfoRequest": "",
        "PluginInfoResponse": "type:int32=1 plugin_api_versions:string*=2 plugin_version:string=3 name:string=4",
        "ConfigSchemaRequest": "",
        "ConfigSchemaResponse": "spec:.%s.Spec=1" % SPEC,
        "NomadDriverConfig": "ClientMaxPort:uint32=1 ClientMinPort:uint32=2",
        "NomadConfig": "driver:NomadDriverConfig=1",
        "SetConfigRequest": "msgpack_config:bytes=1 nomad_config:NomadConfig=2 plugin_api_version:string=3",
        "SetConfigResponse": "",
    },
    DEVICE: {
        "FingerprintRequest": "",
        "FingerprintResponse": "device_group:DeviceGroup*=1",
        "DeviceGroup": "vendor:string=1 device_type:string=2 device_name:string=3 devices:DetectedDevice*=4 "
        "attributes:{}.%s.Attribute=5" % STRUCTS,
        "DetectedDevice": "ID:string=1 healthy:bool=2 health_description:string=3 hw_locality:DeviceLocality=4",
        "DeviceLocality": "pci_bus_id:string=1",
        "ReserveRequest": "device_ids:string*=1",
        "ReserveResponse": "container_res:ContainerReservation=1",
        "ContainerReservation": "envs:{}string=1 mounts:Mount*=2 devices:DeviceSpec*=3",
        "Mount": "task_path:string=1 host_path:string=2 read_only:bool=3",
        "DeviceSpec": "task_path:string=1 host_path:string=2 permissions:string=3",
        "StatsRequest": "collection_interval:.google.protobuf.Duration=1",
        "StatsResponse": "groups:DeviceGroupStats*=1",
        "DeviceGroupStats": "vendor:string=1 type:string=2 name:string=3 instance_stats:{}DeviceStats=4",
        "DeviceStats": "summary:.%s.StatValue=1 stats:.%s.StatObject=2 timestamp:.google.protobuf.Timestamp=3"
        % (STRUCTS, STRUCTS),
    },
}

# path: question, answer, whether answers are a stream.
METHODS = {
    "/grpc.health.v1.Health/Check": ("HealthCheckRequest", "HealthCheckResponse", False),
    "/plugin.GRPCController/Shutdown": ("Empty", "Empty", False),
    "/plugin.GRPCStdio/StreamStdio": ("Empty", "StdioData", True),
    "/%s.BasePlugin/PluginInfo" % BASE: ("PluginInfoRequest", "PluginInfoResponse", False),
    "/%s.BasePlugin/ConfigSchema" % BASE: ("ConfigSchemaRequest", "ConfigSchemaResponse", False),
    "/%s.BasePlugin/SetConfig" % BASE: ("SetConfigRequest", "SetConfigResponse", False),
    "/%s.DevicePlugin/Fingerprint" % DEVICE: ("FingerprintRequest", "FingerprintResponse", True),
    "/%s.DevicePlugin/Reserve" % DEVICE: ("ReserveRequest", "ReserveResponse", False),
    "/%s.DevicePlugin/Stats" % DEVICE: ("StatsRequest", "StatsResponse", True),
}

FIELD = descriptor_pb2.FieldDescriptorProto
PLAIN = {
    "string": FIELD.TYPE_STRING,
    "bytes": FIELD.TYPE_BYTES,
    "bool": FIELD.TYPE_BOOL,
    "double": FIELD.TYPE_DOUBLE,
    "int32": FIELD.TYPE_INT32,
    "uint32": FIELD.TYPE_UINT32,
    "int64": FIELD.TYPE_INT64,
}


def typed(field, name, package):
    if name in PLAIN:
        field.type = PLAIN[name]
    else:
        field.type = FIELD.TYPE_MESSAGE
        field.type_name = name if name.startswith(".") else ".%s.%s" % (package, name)


def add_field(message, text, package):
    head, number = text.split("=")
    name, kind = head.lstrip("|").split(":")
    field = message.field.add(name=name, number=int(number), label=FIELD.LABEL_OPTIONAL)
    if kind.startswith("{}"):
        entry = message.nested_type.add(name=name.title().replace("_", "") + "Entry")
        entry.options.map_entry = True
        typed(entry.field.add(name="key", number=1, label=FIELD.LABEL_OPTIONAL), "string", package)
        typed(entry.field.add(name="value", number=2, label=FIELD.LABEL_OPTIONAL), kind[2:], package)
        field.label, field.type = FIELD.LABEL_REPEATED, FIELD.TYPE_MESSAGE
        field.type_name = ".%s.%s.%s" % (package, message.name, entry.name)
        return
    if kind.endswith("*"):
        field.label, kind = FIELD.LABEL_REPEATED, kind[:-1]
    if head.startswith("|"):
        field.oneof_index = 0
        if not message.oneof_decl:
            message.oneof_decl.add(name="choice")
    typed(field, kind, package)


def build():
    pool = descriptor_pool.Default()
    names = []
    for package, messages in TABLE.items():
        file = descriptor_pb2.FileDescriptorProto(name=package + ".proto", package=package, syntax="proto3")
        file.dependency.extend(
            [duration_pb2.DESCRIPTOR.name, timestamp_pb2.DESCRIPTOR.name, wrappers_pb2.DESCRIPTOR.name]
        )
        file.dependency.extend(other + ".proto" for other in (STRUCTS, SPEC) if package in (BASE, DEVICE))
        for name, fields in messages.items():
            message = file.message_type.add(name=name)
            for text in fields.split():
                add_field(message, text, package)
            names.append("%s.%s" % (package, name))
        pool.Add(file)
    factory = message_factory.MessageFactory(pool)
    return {name.rsplit(".", 1)[1]: factory.GetPrototype(pool.FindMessageTypeByName(name)) for name in names}


MESSAGES = build()
globals().update(MESSAGES)
