//! What a body says of itself, in every format alike: what it is of, and how many series it has.

use crate::exporters::walk::{Head, Labels, Listener, ONE_ROW, Pattern, Point, Selection, Source, Walk};
use crate::model::metric::{MetricDesc, Value};
use crate::model::profile::Profile;
use crate::model::units::Unit;

pub(super) static SERIES: MetricDesc = MetricDesc::gauge(
    "allostat_series",
    Unit::None,
    "Series by family in this response, without this one; families of less than 20 series add up as _other.",
    &["family"],
)
.from_profile(Profile::Standard)
.otlp("allostat.series", "{series}");

pub(super) static PROFILE: MetricDesc = MetricDesc::info(
    "allostat_exposition_info",
    "Profile of this response, with telemetry.include and telemetry.exclude; other families are not exposed.",
    &["profile", "include", "exclude"],
);

/// Families with fewer series share one row. Each row stands for 20 series, so that they are at most 5% of a body.
const LISTED_FROM: u64 = 20;
const REST: &str = "_other";

/// First, because it says what all the rest is.
pub(super) fn profile(listener: &mut impl Listener, walk: &Walk<'_>) {
    let everything = Selection::of(Profile::Full);
    let of = walk.filter.selection().unwrap_or(&everything);
    let joined = |patterns: &[Pattern]| patterns.iter().map(Pattern::to_string).collect::<Vec<_>>().join(",");
    let (include, exclude) = (joined(&of.include), joined(&of.exclude));
    let labels = vec![("profile", of.profile.as_str()), ("include", &*include), ("exclude", &*exclude)];
    one(listener, walk, &PROFILE, &[labels], &[1]);
}

/// Last, because it counts the others.
pub(super) fn series(listener: &mut impl Listener, walk: &Walk<'_>, counts: &[(&'static str, u64)]) {
    let (mut listed, rest): (Vec<_>, Vec<_>) = counts.iter().copied().partition(|(_, n)| *n >= LISTED_FROM);
    listed.push((REST, rest.iter().map(|(_, n)| n).sum()));
    let cells: Vec<Labels<'_>> = listed.iter().map(|(family, _)| vec![("family", *family)]).collect();
    let counts: Vec<u64> = listed.iter().map(|(_, n)| *n).collect();
    one(listener, walk, &SERIES, &cells, &counts);
}

fn one(listener: &mut impl Listener, walk: &Walk<'_>, desc: &'static MetricDesc, cells: &[Labels<'_>], values: &[u64]) {
    if walk.filter.selects(desc, Source::Agent) {
        let head = Head { desc, source: Source::Agent, rows: &ONE_ROW, cells, bounds: &[] };
        let point = |n: &u64| Some(Point { value: Value::Int(*n), exemplar: None });
        listener.family(&head, std::iter::once(values.iter().map(point)));
    }
}
