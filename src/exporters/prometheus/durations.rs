//! Histograms by workload: how long tasks took to start and to die.

use std::sync::Arc;

use super::encode::Body;
use super::labels::{block, tail};
use super::page::{Page, Piece};
use super::{Format, exemplar};
use crate::exporters::walk::{Source, lifecycle};
use crate::model::id::JobId;
use crate::model::metric::{MetricDesc, Value};
use crate::telemetry::durations::{Durations, Histogram, KILLS, STARTS, StartPhase};

pub(super) fn write(body: &mut Body<'_>, all: &[(JobId, Arc<Durations>)]) {
    let blocks: Vec<Piece> = all.iter().map(|(job, _)| Piece::new(&block([("workload", job.as_str())]))).collect();
    let of = || blocks.iter().zip(all.iter().map(|(_, of)| &**of));
    family(body, &lifecycle::START_DURATION, &STARTS, &[None], || of().map(|(block, of)| (block, [&of.starts])));
    let phases = StartPhase::ALL.map(|phase| Some(phase.as_str()));
    let of_phases = || of().map(|(block, of)| (block, of.phases.each_ref()));
    family(body, &lifecycle::START_PHASE_DURATION, &STARTS, &phases, of_phases);
    family(body, &lifecycle::KILL_DURATION, &KILLS, &[None], || of().map(|(block, of)| (block, [&of.kills])));
}

/// What closes the lines of one histogram.
struct Tails {
    buckets: Vec<Piece>,
    rest: Piece,
}

impl Tails {
    fn new(bounds: &[f64], phase: Option<&str>, format: Format) -> Tails {
        let phase = phase.map(|phase| ("phase", phase));
        let bucket = |le: &str| tail(phase.into_iter().chain([("le", le)]));
        let bounds = bounds.iter().map(|bound| bucket(&super::registry::bound(*bound, format)));
        Tails { buckets: bounds.chain([bucket("+Inf")]).collect(), rest: tail(phase) }
    }
}

/// One family: of each workload a histogram per phase, in the order of `phases`.
fn family<'a, const N: usize, I: Iterator<Item = (&'a Piece, [&'a Histogram; N])>>(
    body: &mut Body<'_>,
    desc: &MetricDesc,
    bounds: &[f64],
    phases: &[Option<&str>; N],
    rows: impl Fn() -> I,
) {
    let format = body.format;
    let tails = phases.map(|phase| Tails::new(bounds, phase, format));
    let [bucket, sum, total] = ["bucket", "sum", "count"].map(|part| Piece::new(&format!("{}_{part}", desc.name)));
    body.family(desc, Source::Managed, |page, _| {
        let mut series = 0;
        for (block, histograms) in rows() {
            for (histogram, tails) in histograms.into_iter().zip(&tails) {
                let all = buckets(page, &bucket, block, histogram, tails, format);
                page.sample(&sum, block, &tails.rest, Value::Nanos(histogram.sum.0));
                page.sample(&total, block, &tails.rest, Value::Int(all));
                series += super::encode::count(tails.buckets.len() + 2);
            }
        }
        series
    });
}

/// Gives how many were observed.
fn buckets(page: &mut Page, name: &Piece, block: &Piece, of: &Histogram, tails: &Tails, format: Format) -> u64 {
    let mut upto = 0;
    for (bucket, tail) in of.buckets.iter().zip(&tails.buckets) {
        upto += bucket.count;
        page.sample(name, block, tail, Value::Int(upto));
        exemplar::write(page, format, bucket.latest.as_deref());
    }
    upto
}
