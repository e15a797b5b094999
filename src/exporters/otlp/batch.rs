//! What is in a parcel of each signal: how much, and how it is split in halves. Logs and traces have their own trees,
//! of the same shape as that of metrics.

use std::io;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::logs::v1::{ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans};
use prost::Message;

use super::packed::{compression, pack, read};
use super::parts::{self, second_half};
use crate::telemetry::otlp::OtlpSignal;

/// A batch as the queue has it, and how many points, records or spans are in it.
pub(super) type Counted = (u64, Vec<u8>);

/// Both halves, the first one first; what would be empty is not there. `None`: it is a single point.
///
/// Errors: it cannot be read.
pub(super) fn halves(signal: OtlpSignal, bytes: &[u8]) -> io::Result<Option<Vec<Counted>>> {
    match signal {
        OtlpSignal::Metrics => both::<ExportMetricsServiceRequest>(bytes),
        OtlpSignal::Logs | OtlpSignal::WorkloadLogs => both::<ExportLogsServiceRequest>(bytes),
        OtlpSignal::Traces => both::<ExportTraceServiceRequest>(bytes),
    }
}

fn both<R: ExportRequest>(bytes: &[u8]) -> io::Result<Option<Vec<Counted>>> {
    let mut request: R = read(bytes)?;
    if request.count() < 2 {
        return Ok(None);
    }
    let second = request.second_half();
    let counted = |part: R| (part.count(), pack(&part, compression(bytes)));
    Ok(Some([request, second].map(counted).into_iter().filter(|(count, _)| *count > 0).collect()))
}

trait ExportRequest: Message + Default {
    fn count(&self) -> u64;
    /// Takes it out.
    fn second_half(&mut self) -> Self;
}

impl ExportRequest for ExportMetricsServiceRequest {
    fn count(&self) -> u64 {
        parts::points(self)
    }
    fn second_half(&mut self) -> Self {
        match parts::halves(std::mem::take(self)) {
            Ok((first, second)) => {
                *self = first;
                second
            }
            Err(single) => {
                *self = single;
                Self::default()
            }
        }
    }
}

impl ExportRequest for ExportLogsServiceRequest {
    fn count(&self) -> u64 {
        let scopes = self.resource_logs.iter().flat_map(|of| &of.scope_logs);
        scopes.map(|scope| scope.log_records.len() as u64).sum()
    }
    fn second_half(&mut self) -> Self {
        let of_scope = &mut |scope: &mut ScopeLogs| {
            let half = scope.log_records.len() / 2;
            ScopeLogs { log_records: scope.log_records.split_off(half), ..scope.clone() }
        };
        let of_resource = &mut |of: &mut ResourceLogs| {
            let scope_logs = second_half(&mut of.scope_logs, of_scope);
            ResourceLogs { scope_logs, resource: of.resource.clone(), schema_url: of.schema_url.clone() }
        };
        ExportLogsServiceRequest { resource_logs: second_half(&mut self.resource_logs, of_resource) }
    }
}

impl ExportRequest for ExportTraceServiceRequest {
    fn count(&self) -> u64 {
        let scopes = self.resource_spans.iter().flat_map(|of| &of.scope_spans);
        scopes.map(|scope| scope.spans.len() as u64).sum()
    }
    fn second_half(&mut self) -> Self {
        let of_scope = &mut |scope: &mut ScopeSpans| {
            let half = scope.spans.len() / 2;
            ScopeSpans { spans: scope.spans.split_off(half), ..scope.clone() }
        };
        let of_resource = &mut |of: &mut ResourceSpans| {
            let scope_spans = second_half(&mut of.scope_spans, of_scope);
            ResourceSpans { scope_spans, resource: of.resource.clone(), schema_url: of.schema_url.clone() }
        };
        ExportTraceServiceRequest { resource_spans: second_half(&mut self.resource_spans, of_resource) }
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::logs::v1::LogRecord;
    use opentelemetry_proto::tonic::trace::v1::Span;

    use super::super::settings::Compression;
    use super::*;

    /// One by one, in order.
    fn single(signal: OtlpSignal, bytes: Vec<u8>) -> Vec<Vec<u8>> {
        let (mut rest, mut all) = (vec![bytes], Vec::new());
        while let Some(bytes) = rest.pop() {
            match halves(signal, &bytes).unwrap() {
                Some(both) => rest.extend(both.into_iter().rev().map(|(_, bytes)| bytes)),
                None => all.push(bytes),
            }
        }
        all
    }

    #[test]
    fn halves_of_logs_and_of_traces_end_with_single_ones_in_order() {
        let records = |range: std::ops::Range<u64>| {
            let record = |at| LogRecord { time_unix_nano: at, ..LogRecord::default() };
            let scope_logs = vec![ScopeLogs { log_records: range.map(record).collect(), ..ScopeLogs::default() }];
            ResourceLogs { scope_logs, ..ResourceLogs::default() }
        };
        let logs = ExportLogsServiceRequest { resource_logs: vec![records(0..1), records(1..6), records(6..8)] };
        let times = single(OtlpSignal::Logs, pack(&logs, Compression::Gzip)).into_iter().map(|bytes| {
            let one: ExportLogsServiceRequest = read(&bytes).unwrap();
            one.resource_logs[0].scope_logs[0].log_records[0].time_unix_nano
        });
        assert_eq!(times.collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
        let spans = (0..5).map(|at| Span { start_time_unix_nano: at, ..Span::default() }).collect();
        let scope_spans = vec![ScopeSpans { spans, ..ScopeSpans::default() }];
        let traces = ExportTraceServiceRequest {
            resource_spans: vec![ResourceSpans { scope_spans, ..ResourceSpans::default() }],
        };
        let starts = single(OtlpSignal::Traces, pack(&traces, Compression::Zstd)).into_iter().map(|bytes| {
            let one: ExportTraceServiceRequest = read(&bytes).unwrap();
            one.resource_spans[0].scope_spans[0].spans[0].start_time_unix_nano
        });
        assert_eq!(starts.collect::<Vec<_>>(), (0..5).collect::<Vec<_>>());
    }
}
