"""Reads OTLP metrics with the protocol library and the gRPC of another language.

decode   a request on standard input, its points as JSON on standard output
serve    a collector over gRPC and one over HTTP on free ports: first a line with both ports, then one line for each export
"""

import gzip
import json
import socketserver
import sys
import threading
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.metrics.v1 import metrics_pb2

ENDED = metrics_pb2.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK
DELTA = metrics_pb2.AGGREGATION_TEMPORALITY_DELTA


def attributes(pairs):
    return {pair.key: pair.value.string_value for pair in pairs}


def number(point):
    if point.flags & ENDED:
        return "ended"
    kind = point.WhichOneof("value")
    return {"int": point.as_int} if kind == "as_int" else {"float": point.as_double}


def buckets(point):
    if point.flags & ENDED:
        return "ended"
    assert point.count == sum(point.bucket_counts)
    return {"bounds": list(point.explicit_bounds), "counts": list(point.bucket_counts), "sum": point.sum}


def exponential(point):
    if point.flags & ENDED:
        return "ended"
    counts = list(point.positive.bucket_counts)
    assert point.count == point.zero_count + sum(counts)
    return {
        "scale": point.scale,
        "zeros": point.zero_count,
        "offset": point.positive.offset,
        "counts": counts,
        "sum": point.sum,
    }


VALUES = {"histogram": buckets, "exponential_histogram": exponential}


def points(request):
    for of in request.resource_metrics:
        resource = attributes(of.resource.attributes)
        for metric in (metric for scope in of.scope_metrics for metric in scope.metrics):
            data = metric.WhichOneof("data")
            held = getattr(metric, data)
            kind = ("sum" if held.is_monotonic else "up-down sum") if data == "sum" else data
            value = VALUES.get(data, number)
            for point in held.data_points:
                yield {
                    "resource": resource,
                    "metric": metric.name,
                    "unit": metric.unit,
                    "kind": kind,
                    "is_delta": data != "gauge" and held.aggregation_temporality == DELTA,
                    "attributes": attributes(point.attributes),
                    "start": point.start_time_unix_nano,
                    "at": point.time_unix_nano,
                    "value": value(point),
                    "exemplars": len(point.exemplars),
                }


LOCK = threading.Lock()


def tell(over, request):
    line = json.dumps({"over": over, "points": list(points(request))})
    with LOCK:
        print(line, flush=True)


class OverGrpc(metrics_service_pb2_grpc.MetricsServiceServicer):
    def Export(self, request, context):
        tell("grpc", request)
        return metrics_service_pb2.ExportMetricsServiceResponse()


class OverHttp(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        assert self.headers["content-type"] == "application/x-protobuf" and self.path == "/v1/metrics"
        tell("http", metrics_service_pb2.ExportMetricsServiceRequest.FromString(gzip.decompress(body)))
        answer = metrics_service_pb2.ExportMetricsServiceResponse().SerializeToString()
        self.send_response(200)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *words):
        pass


class Server(ThreadingHTTPServer):
    def server_bind(self):
        # That of the library looks its own name up, which may take long.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]


def serve():
    over_grpc = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(OverGrpc(), over_grpc)
    port = over_grpc.add_insecure_port("127.0.0.1:0")
    over_grpc.start()
    over_http = Server(("127.0.0.1", 0), OverHttp)
    print(json.dumps({"grpc": port, "http": over_http.server_address[1]}), flush=True)
    over_http.serve_forever()


if sys.argv[-1] == "serve":
    serve()
else:
    request = metrics_service_pb2.ExportMetricsServiceRequest.FromString(sys.stdin.buffer.read())
    print(json.dumps(list(points(request))))
