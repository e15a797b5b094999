"""A device plugin of the tests, over the real protocol. What it does wrong is said by FAULT."""

import base64
import itertools
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from concurrent import futures

import grpc
from google.protobuf import wrappers_pb2 as wrap

import protocol as p

FAULT = os.environ.get("FAULT", "")
# Of the ids of its devices.
PREFIX = os.environ.get("PREFIX", "f")
COOKIE = "e4327c2e01eabfd75a8a67adb114fb34a757d57eee7728d857a8cec6e91a7255"
ended = threading.Event()
changes = queue.Queue()


def say(text):
    print(text, flush=True)


def attribute(**value):
    return p.Attribute(**value)


def group():
    found = p.DeviceGroup(vendor="acme", device_type="fpga", device_name="F1")
    found.devices.add(ID=PREFIX + "-0", healthy=True).hw_locality.pci_bus_id = "0000:3b:00.0"
    found.devices.add(ID=PREFIX + "-1", healthy=False, health_description="too hot")
    if FAULT == "four":
        for n in (2, 3, 4):
            found.devices.add(ID=f"{PREFIX}-{n}", healthy=True)
    found.attributes["memory"].CopyFrom(attribute(int_val=16, unit="GiB"))
    found.attributes["clock"].CopyFrom(attribute(float_val=1.5, unit="GHz"))
    found.attributes["bitstream"].CopyFrom(attribute(string_val=""))
    found.attributes["secure"].CopyFrom(attribute(bool_val=False))
    return found


def wrong(found):
    if FAULT == "nan":
        found.attributes["clock"].float_val = float("nan")
    if FAULT == "duplicate ids":
        found.devices.add(ID=PREFIX + "-0", healthy=True)
    if FAULT == "empty vendor":
        found.vendor = ""
    if FAULT == "half a million attributes":
        for n in range(500_000):
            found.attributes[str(n)].bool_val = True
    if FAULT == "many attributes":
        for n in range(2_000):
            found.attributes[str(n)].bool_val = True
    if FAULT == "long strings":
        found.attributes["bitstream"].string_val = "x" * 10_000_000
    return found


def fingerprint(_, context):
    if FAULT == "fingerprint refused":
        context.abort(grpc.StatusCode.INTERNAL, "no driver: 100% gone")
    if FAULT == "silent":
        ended.wait()
    first = p.FingerprintResponse(device_group=[wrong(group())])
    if FAULT == "no text":
        yield first.SerializeToString().replace(b"acme", b"ac\xff\xff")
        return
    yield first.SerializeToString()
    if FAULT == "fingerprint error":
        context.abort(grpc.StatusCode.INTERNAL, "the driver went away")
    if FAULT == "clean end":
        return
    if FAULT == "dies":
        print("panic: out of luck", file=sys.stderr, flush=True)
        os._exit(3)
    if FAULT == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    while context.is_active() and not ended.is_set():
        try:
            change = changes.get(timeout=0.05)
        except queue.Empty:
            continue
        yield p.FingerprintResponse(device_group=[change]).SerializeToString()


streams = itertools.count()
refused = threading.Event()
checks_behind = itertools.count()


def stats(request, context):
    which = next(streams)
    if FAULT == "no stats":
        refused.set()
        context.abort(grpc.StatusCode.UNIMPLEMENTED, "none")
    if FAULT == "stats error" and which == 0:
        context.abort(grpc.StatusCode.INTERNAL, "busy")
    interval = request.collection_interval.ToTimedelta().total_seconds()
    for n in itertools.count():
        answer = p.StatsResponse()
        found = answer.groups.add(vendor="acme", type="fpga", name="F1")
        one = found.instance_stats[PREFIX + "-0"]
        one.timestamp.FromSeconds(1_700_000_000 + n)
        one.summary.int_numerator_val.value = n
        values = one.stats.attributes
        values["count"].int_numerator_val.value = n
        values["count"].int_denominator_val.value = 0
        values["zero"].float_numerator_val.value = 0.0
        values["no"].bool_val.value = False
        values["none"].desc = "not read"
        values["empty"].string_val.CopyFrom(wrap.StringValue(value=""))
        one.stats.nested["lane"].attributes["errors"].int_numerator_val.value = 2**62
        if FAULT == "stats nan":
            values["zero"].float_numerator_val.value = float("inf")
        if FAULT == "deep stats":
            deep = one.stats
            for _ in range(200):
                deep = deep.nested["x"]
            deep.attributes["x"].bool_val.value = True
        if FAULT == "stranger":
            found.instance_stats["f-9"].summary.int_numerator_val.value = 1
        yield answer
        if FAULT == "stats end" and which == 0:
            return
        if not context.is_active() or ended.wait(interval):
            return


def reserve(request, context):
    if FAULT == "reserve hangs":
        ended.wait()
    ids = list(request.device_ids)
    if any(not one.startswith(PREFIX + "-") for one in ids):
        context.abort(grpc.StatusCode.NOT_FOUND, "unknown device IDs: " + ",".join(ids))
    answer = p.ReserveResponse()
    answer.container_res.envs["ACME_VISIBLE_DEVICES"] = ",".join(ids)
    node = answer.container_res.devices.add(task_path="/dev/acme0", host_path="/dev/null", permissions="rw")
    if FAULT == "reserve wrong":
        node.permissions = "x"
    answer.container_res.mounts.add(task_path="/opt/acme", host_path="/usr", read_only=True)
    return answer


def info(_, context):
    kind = 2 if FAULT == "driver" else 3
    versions = ["v9.0.0"] if FAULT == "api version" else ["v0.1.0"]
    return p.PluginInfoResponse(type=kind, plugin_api_versions=versions, plugin_version="0.0.1", name="acme")


def schema(_, context):
    found = p.ConfigSchemaResponse()
    fields = found.spec.object.attributes
    fields["period"].default.primary.Attr.name = "period"
    fields["period"].default.default.literal.value = '"1m"'
    fields["ignored"].Attr.name = "ignored"
    if FAULT == "needs config":
        fields["token"].Attr.name = "token"
        fields["token"].Attr.required = True
    return found


def set_config(request, context):
    if FAULT == "config refused":
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "bad period")
    # A fixed map: its two names, what Nomad fills in, and the ports that are left to plugins.
    assert b"period" in request.msgpack_config and b"ignored" in request.msgpack_config, request
    assert (b"1m" in request.msgpack_config) != (b"5s" in request.msgpack_config), request
    assert request.plugin_api_version == "v0.1.0" and request.nomad_config.driver.ClientMinPort > 0, request
    print('{"@level":"info","@message":"configured","@module":"acme","n":1}', file=sys.stderr, flush=True)
    return p.SetConfigResponse()


def health(request, context):
    assert request.service == "plugin", request
    ill = FAULT == "ill" or (refused.is_set() and next(checks_behind) == 5)
    return p.HealthCheckResponse(status=2 if ill else 1)


def stdio(_, context):
    yield p.StdioData(channel=1, data=b"printed by a library\n")
    ended.wait()


def shutdown(_, context):
    if FAULT != "stays":
        ended.set()
    return p.Empty()


HANDLERS = {
    "Check": health,
    "Shutdown": shutdown,
    "StreamStdio": stdio,
    "PluginInfo": info,
    "ConfigSchema": schema,
    "SetConfig": set_config,
    "Fingerprint": fingerprint,
    "Reserve": reserve,
    "Stats": stats,
}


def handlers():
    for path, (question, answer, is_stream) in p.METHODS.items():
        _, service, method = path.split("/")
        kind = grpc.unary_stream_rpc_method_handler if is_stream else grpc.unary_unary_rpc_method_handler
        handler = kind(
            HANDLERS[method],
            request_deserializer=p.MESSAGES[question].FromString,
            response_serializer=lambda message: message if isinstance(message, bytes) else message.SerializeToString(),
        )
        yield grpc.method_handlers_generic_handler(service, {method: handler})


def read(path):
    with open(path, "rb") as file:
        return file.read()


def serve():
    options = [("grpc.max_send_message_length", -1)]
    server = grpc.server(futures.ThreadPoolExecutor(16), handlers=tuple(handlers()), options=options)
    tcp = FAULT == "tcp"
    address = "127.0.0.1:0" if tcp else "unix:%s/plugin.sock" % os.environ["DIR"]
    certificate = ""
    if os.environ.get("TLS"):
        pem = read(os.environ["DIR"] + "/cert.pem")
        key = read(os.environ["DIR"] + "/key.pem")
        theirs = os.environ["PLUGIN_CLIENT_CERT"].encode()
        credentials = grpc.ssl_server_credentials([(key, pem)], theirs, require_client_auth=True)
        port = server.add_secure_port(address, credentials)
        shown = read(os.environ["DIR"] + "/other.pem") if FAULT == "other certificate" else pem
        certificate = "".join(shown.decode().splitlines()[1:-1]).rstrip("=")
    else:
        port = server.add_insecure_port(address)
    with open(os.environ["DIR"] + "/tmpdir", "w") as file:
        file.write(os.environ["TMPDIR"])
    server.start()
    where = "tcp|127.0.0.1:%d" % port if tcp else "unix|%s/plugin.sock" % os.environ["DIR"]
    say("1|2|%s|grpc|%s" % (where, certificate))
    say("a line after it")
    return server


def main():
    if os.environ.get("NOMAD_PLUGIN_MAGIC_COOKIE") != COOKIE:
        sys.exit("this is a plugin")
    assert os.environ["PLUGIN_PROTOCOL_VERSIONS"] == "2", os.environ
    assert not any(name.startswith(("ALLOSTAT_", "OTEL_")) for name in os.environ), os.environ
    if FAULT == "garbage":
        sys.stdout.buffer.write(b"\x00\xff|||" * 40_000)
        sys.stdout.flush()
        time.sleep(60)
    if FAULT == "version":
        say("1|1|unix|/nowhere|grpc|")
        time.sleep(60)
    if FAULT == "hangs":
        time.sleep(60)
    if FAULT == "no listener":
        say("1|2|unix|%s/none.sock|grpc|" % os.environ["DIR"])
        time.sleep(60)
    if FAULT == "exits":
        print("cannot find a driver", file=sys.stderr, flush=True)
        sys.exit(4)
    server = serve()
    if FAULT == "child":
        subprocess.Popen(["sh", "-c", "sleep 60; : " + os.environ["DIR"]])
    if FAULT == "changes":
        second = group()
        second.devices[1].healthy = True
        changes.put(second)
    ended.wait()
    if FAULT == "stays":
        time.sleep(60)
    server.stop(0)


main()
