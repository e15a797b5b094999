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
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2, logs_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.metrics.v1 import metrics_pb2

ENDED = metrics_pb2.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK
DELTA = metrics_pb2.AGGREGATION_TEMPORALITY_DELTA


def shown(value):
    if value.WhichOneof("value") == "array_value":
        return json.dumps([one.string_value for one in value.array_value.values], separators=(",", ":"))
    return value.string_value


def attributes(pairs):
    return {pair.key: shown(pair.value) for pair in pairs}


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


def value(attribute):
    return getattr(attribute, attribute.WhichOneof("value"))


def records(request):
    for of in request.resource_logs:
        instance = attributes(of.resource.attributes)["service.instance.id"]
        for record in (record for scope in of.scope_logs for record in scope.log_records):
            numbers = [value(pair.value) for pair in record.attributes if pair.key == "allostat.event.id"]
            yield {
                "instance": instance,
                "number": numbers[0] if numbers else None,
                "body": record.body.string_value,
                "at": record.time_unix_nano,
                "trace": record.trace_id.hex(),
                "severity": record.severity_text,
            }


def spans(request):
    for of in request.resource_spans:
        instance = attributes(of.resource.attributes)["service.instance.id"]
        for span in (span for scope in of.scope_spans for span in scope.spans):
            yield {
                "instance": instance,
                "name": span.name,
                "id": span.span_id.hex(),
                "parent": span.parent_span_id.hex(),
                "trace": span.trace_id.hex(),
                "from": span.start_time_unix_nano,
                "to": span.end_time_unix_nano,
                "links": [link.span_id.hex() for link in span.links],
                "is_error": span.status.code == 2,
            }


LOCK = threading.Lock()


def report(over, request):
    kind = {"ExportLogsServiceRequest": "records", "ExportTraceServiceRequest": "spans"}.get(type(request).__name__, "points")
    line = json.dumps({"over": over, kind: list({"records": records, "spans": spans, "points": points}[kind](request))})
    with LOCK:
        print(line, flush=True)


class OverGrpc(metrics_service_pb2_grpc.MetricsServiceServicer):
    def Export(self, request, context):
        report("grpc", request)
        return metrics_service_pb2.ExportMetricsServiceResponse()


class LogsOverGrpc(logs_service_pb2_grpc.LogsServiceServicer):
    def Export(self, request, context):
        report("grpc", request)
        return logs_service_pb2.ExportLogsServiceResponse()


class TracesOverGrpc(trace_service_pb2_grpc.TraceServiceServicer):
    def Export(self, request, context):
        report("grpc", request)
        return trace_service_pb2.ExportTraceServiceResponse()


REQUESTS = {
    "/v1/metrics": metrics_service_pb2.ExportMetricsServiceRequest,
    "/v1/logs": logs_service_pb2.ExportLogsServiceRequest,
    "/v1/traces": trace_service_pb2.ExportTraceServiceRequest,
}


class OverHttp(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        assert self.headers["content-type"] == "application/x-protobuf"
        report("http", REQUESTS[self.path].FromString(gzip.decompress(body)))
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
    logs_service_pb2_grpc.add_LogsServiceServicer_to_server(LogsOverGrpc(), over_grpc)
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(TracesOverGrpc(), over_grpc)
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
