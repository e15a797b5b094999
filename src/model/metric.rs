//! Metric descriptors as data: HELP and TYPE lines, the catalogue, OTLP units and the dashboard check all derive from
//! them.

use std::borrow::Cow;

use super::id::AllocId;
use super::profile::Profile;
use super::units::{Timestamp, Unit};
use super::words;

words! {
    pub enum Kind {
        Counter = "counter",
        Gauge = "gauge",
        Histogram = "histogram",
        /// Value 1; the information is in its labels. TYPE gauge in text 0.0.4.
        Info = "info",
    }
}

words! {
    /// Whether a series goes with the end of its task (gauges of what is used now), or stays until it was scraped.
    pub enum Life {
        Live = "live",
        Final = "final",
    }
}

/// A value as it goes to the text: integers stay integers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    Int(u64),
    /// Integer nanoseconds, printed as decimal seconds.
    Nanos(u64),
    /// Ratios, cores and temperatures only; never NaN or infinite.
    Float(f64),
}

impl Value {
    pub fn is_zero(self) -> bool {
        match self {
            Value::Int(n) | Value::Nanos(n) => n == 0,
            Value::Float(f) => f == 0.0,
        }
    }
}

/// One observation behind a series that adds up many: whose it was, so that a number leads to an alloc.
#[derive(Debug, Clone, PartialEq)]
pub struct Exemplar {
    pub alloc_id: AllocId,
    /// Number of its event, as in `/v1/events`.
    pub event_id: Option<u64>,
    /// What it added: 1 to a counter, what was measured to a histogram.
    pub value: Value,
    pub at: Timestamp,
}

impl Exemplar {
    /// Takes the place of an older one: a series' exemplars come in order of time, or Prometheus refuses them.
    pub fn replace(self, latest: &mut Option<Exemplar>) {
        if latest.as_ref().is_none_or(|l| l.at <= self.at) {
            *latest = Some(self);
        }
    }
}

/// What a metric is called in OTLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Otlp {
    /// `container.cpu.time`, or `allostat.…` where no convention exists.
    pub name: &'static str,
    /// UCUM.
    pub unit: &'static str,
}

/// One metric family.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MetricDesc {
    pub name: &'static str,
    pub kind: Kind,
    pub unit: Unit,
    pub help: &'static str,
    pub labels: &'static [&'static str],
    /// The kernel file, system call or part that it comes from.
    pub source: &'static str,
    /// When there is no series; "never" where it always exists.
    pub absent: &'static str,
    pub life: Life,
    pub otlp: Option<Otlp>,
    /// A counter whose series have in OpenMetrics the time since which they count (`_created`): people alert on its
    /// first rise, which may come before the first scrape.
    pub created: bool,
    /// The smallest profile that has it: the smallest of all where there are few of its series on a host.
    pub profile: Profile,
    /// The smallest profile in which its series are there while they are at 0, too.
    pub zeros: Profile,
}

impl MetricDesc {
    pub const fn new(
        name: &'static str,
        kind: Kind,
        unit: Unit,
        help: &'static str,
        labels: &'static [&'static str],
    ) -> MetricDesc {
        let life = match kind {
            Kind::Gauge => Life::Live,
            Kind::Counter | Kind::Histogram | Kind::Info => Life::Final,
        };
        MetricDesc {
            name,
            kind,
            unit,
            help,
            labels,
            source: "agent",
            absent: "never",
            life,
            otlp: None,
            created: false,
            profile: Profile::Lean,
            zeros: Profile::Lean,
        }
    }
    pub const fn counter(
        name: &'static str,
        unit: Unit,
        help: &'static str,
        labels: &'static [&'static str],
    ) -> MetricDesc {
        MetricDesc::new(name, Kind::Counter, unit, help, labels)
    }
    pub const fn gauge(
        name: &'static str,
        unit: Unit,
        help: &'static str,
        labels: &'static [&'static str],
    ) -> MetricDesc {
        MetricDesc::new(name, Kind::Gauge, unit, help, labels)
    }
    pub const fn info(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> MetricDesc {
        MetricDesc::new(name, Kind::Info, Unit::None, help, labels)
    }
    #[must_use]
    pub const fn from_source(mut self, source: &'static str) -> MetricDesc {
        self.source = source;
        self
    }
    #[must_use]
    pub const fn absent_when(mut self, absent: &'static str) -> MetricDesc {
        self.absent = absent;
        self
    }
    #[must_use]
    pub const fn stays(mut self) -> MetricDesc {
        self.life = Life::Final;
        self
    }
    #[must_use]
    pub const fn otlp(mut self, name: &'static str, unit: &'static str) -> MetricDesc {
        self.otlp = Some(Otlp { name, unit });
        self
    }

    /// See [`MetricDesc::created`].
    #[must_use]
    pub const fn with_created(mut self) -> MetricDesc {
        self.created = true;
        self
    }

    /// See [`MetricDesc::profile`].
    #[must_use]
    pub const fn from_profile(mut self, profile: Profile) -> MetricDesc {
        self.profile = profile;
        self
    }
    /// See [`MetricDesc::zeros`]: only where no rule can miss them.
    #[must_use]
    pub const fn zeros_from(mut self, profile: Profile) -> MetricDesc {
        self.zeros = profile;
        self
    }

    /// The name of its series with the time since which it counts.
    pub fn created_name(&self) -> Option<String> {
        let stem = self.name.strip_suffix("_total").filter(|_| self.created)?;
        Some(format!("{stem}_created"))
    }
}

/// Declares families, and lists them in the order in which the catalogue shows them.
macro_rules! families {
    ($(pub static $name:ident: MetricDesc = $desc:expr;)*) => {
        $(pub static $name: MetricDesc = $desc;)*
        pub static METRICS: &[&MetricDesc] = &[$(&$name,)*];
    };
}

pub(crate) use families;

/// Samples of families that have no per-task shape: what host collectors push.
#[derive(Debug, Clone, Default)]
pub struct Samples(pub Vec<Sample>);

#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    pub desc: &'static MetricDesc,
    /// Label values, in the order of `desc.labels`.
    pub labels: Vec<Cow<'static, str>>,
    pub value: Value,
}

impl Samples {
    pub fn push(&mut self, desc: &'static MetricDesc, labels: &[&'static str], value: Value) {
        self.push_owned(desc, labels.iter().map(|l| Cow::Borrowed(*l)).collect(), value);
    }
    pub fn push_owned(&mut self, desc: &'static MetricDesc, labels: Vec<Cow<'static, str>>, value: Value) {
        debug_assert_eq!(labels.len(), desc.labels.len(), "{} must get one value for each label", desc.name);
        self.0.push(Sample { desc, labels, value });
    }
    /// The value of a family without labels; `None`: it is not there, or no integer.
    pub fn int(&self, desc: &MetricDesc) -> Option<u64> {
        let sample = self.0.iter().find(|s| s.desc.name == desc.name)?;
        if let Value::Int(n) = sample.value { Some(n) } else { None }
    }
    pub fn push_int(&mut self, desc: &'static MetricDesc, labels: &[&'static str], value: u64) {
        self.push(desc, labels, Value::Int(value));
    }
    pub fn push_nanos(&mut self, desc: &'static MetricDesc, labels: &[&'static str], nanos: u64) {
        self.push(desc, labels, Value::Nanos(nanos));
    }
}
