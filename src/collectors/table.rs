//! What a subject says about its kernel files: where each stands, when it can have changed, how its text becomes values.

use super::raw::Raw;
use crate::host::hierarchy::{Hierarchy, Layout, Version};
use crate::kernel::cgroup::limit;
use crate::kernel::{ParseError, Parsed, text};
use crate::model::measure::{Measure, Nature, ValueSource, When};
use crate::model::units::Limit;
use crate::model::usage::{Field, Usage};

/// The hierarchy a file stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Home {
    /// The v1 hierarchy of this controller.
    V1(&'static str),
    /// The unified tree, if this controller belongs to it.
    V2(&'static str),
    /// The unified tree, whatever its controllers.
    Unified,
    /// The unified tree, unless this controller has a v1 hierarchy that tells the same more exactly.
    UnifiedUnlessV1(&'static str),
    /// The unified tree of a hybrid host, beside the v1 hierarchy of this controller.
    UnifiedBesideV1(&'static str),
}

impl Home {
    /// Where that is on this host; `None` where it is not.
    pub(super) fn find(self, layout: &Layout) -> Option<&Hierarchy> {
        let of = |controller, version| layout.controller(controller).filter(|h| h.version == version);
        match self {
            Home::V1(controller) => of(controller, Version::V1),
            Home::V2(controller) => of(controller, Version::V2),
            Home::Unified => layout.unified(),
            Home::UnifiedUnlessV1(controller) if of(controller, Version::V1).is_some() => None,
            Home::UnifiedUnlessV1(_) => layout.unified(),
            Home::UnifiedBesideV1(controller) => of(controller, Version::V1).and(layout.unified()),
        }
    }
    /// The first part of a key: the v1 controller, `unified` or `hybrid`.
    fn label(self) -> &'static str {
        match self {
            Home::V1(controller) => controller,
            Home::V2(_) | Home::Unified | Home::UnifiedUnlessV1(_) => "unified",
            // A key of its own: what the file means differs from what it means on a v2 host.
            Home::UnifiedBesideV1(_) => "hybrid",
        }
    }
}

/// What is read and told of one subject.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) measures: &'static [Measure<Usage>],
    /// Those that hold nothing but the number of a measure stand in the measure: see [`File::of`].
    pub(super) files: &'static [File],
}

/// One kernel file of a cgroup.
#[derive(Debug, Clone, Copy)]
pub(super) struct File {
    pub(super) home: Home,
    pub(super) name: &'static str,
    pub(super) when: When,
    /// What it tells, alone or together with others: nothing else is lost without it.
    pub(super) fields: &'static [Field],
    /// `false`: another file has told it already.
    pub(super) needed: fn(&Raw) -> bool,
    tell: Tell,
}

#[derive(Debug, Clone, Copy)]
enum Tell {
    /// Puts the file's text into what is its own; `None`: there is no such file. Gives the first thing that could not be understood.
    Text(fn(&mut Raw, Option<&[u8]>) -> Option<ParseError>),
    /// It holds one number, or `max` in place of a limit.
    Number(Field),
}

impl File {
    pub(super) const fn new(
        home: Home,
        name: &'static str,
        when: When,
        fields: &'static [Field],
        tell: fn(&mut Raw, Option<&[u8]>) -> Option<ParseError>,
    ) -> File {
        File { home, name, when, fields, needed: |_| true, tell: Tell::Text(tell) }
    }
    pub(super) const fn if_needed(mut self, needed: fn(&Raw) -> bool) -> File {
        self.needed = needed;
        self
    }
    /// Those that hold nothing but the number of a measure.
    pub(super) fn of(measure: &'static Measure<Usage>) -> impl Iterator<Item = File> {
        let fields = measure.field.as_slice();
        let of = |home: fn(&'static str) -> Home, source| match (source, measure.field) {
            (ValueSource::Number { controller, file, when }, Some(field)) => {
                let (home, needed, tell) = (home(controller), |_: &Raw| true, Tell::Number(field));
                Some(File { home, name: file, when, fields, needed, tell })
            }
            _ => None,
        };
        [of(Home::V1, measure.v1), of(Home::V2, measure.v2)].into_iter().flatten()
    }

    /// Puts its text into the fields that are its own; `None`: there is no such file, so they are absent. Gives the first thing
    /// that could not be understood.
    pub(super) fn apply(&self, raw: &mut Raw, bytes: Option<&[u8]>) -> Option<ParseError> {
        let field = match self.tell {
            Tell::Text(tell) => return tell(raw, bytes),
            Tell::Number(field) => field,
        };
        let (value, error) = match field.nature() {
            Nature::Limit => {
                let (limit, error) = value(bytes, |b| limit::parse(self.name, b));
                (limit.and_then(Limit::finite), error)
            }
            _ => number(self.name, bytes),
        };
        raw.usage.set(field, value);
        error
    }

    /// Read after the last process is gone, too: not what is used now only.
    pub(super) fn is_read_at_end(&self) -> bool {
        self.fields.iter().any(|field| !field.nature().goes_with_the_end())
    }
    /// It tells nothing but what an alloc shows as the sum over its tasks: not read of an alloc.
    pub(super) fn is_of_tasks_only(&self) -> bool {
        self.fields.iter().all(|field| field.nature().is_summed())
    }
    /// `memory/memory.stat`, `unified/cpu.pressure`.
    pub(super) fn key(&self) -> String {
        format!("{}/{}", self.home.label(), self.name)
    }
    pub(super) fn has_key(&self, key: &str) -> bool {
        key.strip_prefix(self.home.label()).and_then(|k| k.strip_prefix('/')) == Some(self.name)
    }
}

/// Of a file with one number.
pub(super) fn number(file: &'static str, bytes: Option<&[u8]>) -> Parsed<Option<u64>> {
    value(bytes, |b| text::single(file, b))
}

/// Of a file that is one value.
pub(super) fn value<T>(bytes: Option<&[u8]>, parse: impl Fn(&[u8]) -> Result<T, ParseError>) -> Parsed<Option<T>> {
    match bytes.map(parse) {
        None => (None, None),
        Some(Ok(value)) => (Some(value), None),
        Some(Err(error)) => (None, Some(error)),
    }
}

/// Of a file with several values, each of which may be missing.
pub(super) fn values<T: Default>(bytes: Option<&[u8]>, parse: impl Fn(&[u8]) -> Parsed<T>) -> Parsed<T> {
    bytes.map_or_else(|| (T::default(), None), parse)
}
