"""A client like Nomad's, for a plugin of ours: starts it, asks it everything, prints what it heard as JSON.

Arguments: the program and its arguments. TLS: a directory with cert.pem and key.pem; STRANGER: with those of another authority."""

import itertools
import json
import os
import subprocess
import sys

import grpc
from google.protobuf import json_format

import protocol as p

COOKIE = "e4327c2e01eabfd75a8a67adb114fb34a757d57eee7728d857a8cec6e91a7255"
LIMIT = 20


def read(name):
    with open(os.path.join(os.environ["TLS"], name), "rb") as file:
        return file.read()


def start():
    env = dict(os.environ, NOMAD_PLUGIN_MAGIC_COOKIE=COOKIE, PLUGIN_PROTOCOL_VERSIONS="2")
    if os.environ.get("TLS"):
        env["PLUGIN_CLIENT_CERT"] = read("cert.pem").decode()
    program = subprocess.Popen(sys.argv[1:], env=env, stdout=subprocess.PIPE, text=True)
    core, app, network, address, kind, certificate = program.stdout.readline().strip().split("|")
    assert (core, app, network, kind) == ("1", "2", "unix", "grpc"), (core, app, network, kind)
    return program, address, certificate


def connect(address, certificate):
    target = "unix:" + address
    if not certificate:
        return grpc.insecure_channel(target)
    lines = [certificate[n : n + 64] for n in range(0, len(certificate), 64)]
    lines[-1] += "=" * (-len(certificate) % 4)
    theirs = "\n".join(["-----BEGIN CERTIFICATE-----", *lines, "-----END CERTIFICATE-----", ""]).encode()
    who = "other" if os.environ.get("STRANGER") else ""
    key, pem = read((who and "other-") + "key.pem"), read((who or "cert") + ".pem")
    credentials = grpc.ssl_channel_credentials(theirs, key, pem)
    return grpc.secure_channel(target, credentials, options=[("grpc.ssl_target_name_override", "localhost")])


class Plugin:
    def __init__(self, channel):
        self.channel = channel

    def __getattr__(self, method):
        path = next(path for path in p.METHODS if path.endswith("/" + method))
        question, answer, is_stream = p.METHODS[path]
        kind = self.channel.unary_stream if is_stream else self.channel.unary_unary
        call = kind(
            path,
            request_serializer=p.MESSAGES[question].SerializeToString,
            response_deserializer=p.MESSAGES[answer].FromString,
        )
        return lambda message=None, **fields: call(message or p.MESSAGES[question](**fields), timeout=LIMIT)


def refused(call):
    try:
        call()
    except grpc.RpcError as error:
        return [error.code().name, error.details()]
    return None


def plain(message):
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


def talk(plugin, channel):
    heard = {}
    heard["health"] = plain(plugin.Check(service="plugin"))
    heard["other health"] = refused(lambda: plugin.Check(service="x"))
    heard["info"] = plain(plugin.PluginInfo())
    heard["schema"] = plain(plugin.ConfigSchema())
    config = p.SetConfigRequest(msgpack_config=b"\x80", plugin_api_version="v0.1.0")
    heard["config"] = plain(plugin.SetConfig(config))
    heard["other config"] = refused(lambda: plugin.SetConfig(plugin_api_version="v9"))
    stdio = plugin.StreamStdio()
    groups = plugin.Fingerprint()
    count = 1 if os.environ.get("DEVICE_PLUGIN") else 2
    heard["groups"] = [plain(answer) for answer in itertools.islice(groups, count)]
    groups.cancel()
    request = p.StatsRequest()
    request.collection_interval.FromMilliseconds(200)
    readings = plugin.Stats(request)
    heard["stats"] = [plain(answer) for answer in itertools.islice(readings, 2)]
    readings.cancel()
    heard["reserved"] = refused(lambda: heard.update(reserve=plain(plugin.Reserve(device_ids=["GPU-1", "GPU-2"]))))
    heard["refused"] = refused(lambda: plugin.Reserve(device_ids=["GPU-9"]))
    none = channel.unary_unary("/no.Such/Method", request_serializer=bytes, response_deserializer=bytes)
    heard["unknown"] = refused(lambda: none(b"", timeout=LIMIT))
    broken = channel.unary_unary(
        "/hashicorp.nomad.plugins.device.DevicePlugin/Reserve", request_serializer=bytes, response_deserializer=bytes
    )
    heard["malformed"] = refused(lambda: broken(b"\xff\xff", timeout=LIMIT))[0]
    heard["too large"] = refused(lambda: broken(b"x" * 5_000_000, timeout=LIMIT))[0]
    stdio.cancel()
    return heard


def main():
    program, address, certificate = start()
    with connect(address, certificate) as channel:
        if os.environ.get("STRANGER"):
            heard = {"stranger": refused(lambda: Plugin(channel).Check(service="plugin"))[0]}
            program.terminate()
        else:
            heard = talk(Plugin(channel), channel)
            Plugin(channel).Shutdown()
    heard["exit"] = program.wait(10)
    heard["socket"] = os.path.exists(os.path.dirname(address))
    heard["rest"] = program.stdout.read()
    print(json.dumps(heard))


main()
