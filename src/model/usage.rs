//! What a task (or an alloc) used: every field optional, because absent is never 0.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use serde_json::{Map, Value as Json, json};

use super::bits::{Bits, words};
use super::measure::{Cell, HasFields, Measure, Nature};
use super::metric::Value;
use super::profile::{Profile, Profiles};
use super::units::Unit;

macro_rules! fields {
    ($($name:ident: $nature:ident,)*) => {
        /// One value of a [`Usage`], called as in records and answers; what it means stands at its measure, in
        /// `collectors`. At most 256, which are the numbers of a byte.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(non_camel_case_types)]
        #[repr(u8)]
        pub enum Field { $($name,)* }

        impl Field {
            pub const ALL: [Field; [$(Field::$name),*].len()] = [$(Field::$name),*];

            pub const fn name(self) -> &'static str {
                match self { $(Field::$name => stringify!($name),)* }
            }
            pub const fn nature(self) -> Nature {
                match self { $(Field::$name => Nature::$nature,)* }
            }
            fn named(name: &str) -> Option<Field> {
                match name {
                    $(stringify!($name) => Some(Field::$name),)*
                    _ => None,
                }
            }
            /// What a measure of it is called.
            const fn stem(self) -> &'static str {
                match self {
                    $(Field::$name if Nature::$nature.counts() => concat!(stringify!($name), "_total"),)*
                    other => other.name(),
                }
            }
            const fn shown(self) -> fn(&Usage) -> Option<Value> {
                match self { $(Field::$name => |usage| usage.$name().map(const { Field::$name.value() }),)* }
            }
            /// Its only series where it is a measure by itself.
            const fn cells(self) -> &'static [Cell<Usage>] {
                match self { $(Field::$name => const { &[Cell::of(Field::$name, &[])] },)* }
            }
        }

        impl Usage {
            $(pub const fn $name(&self) -> Option<u64> { self.get(Field::$name) })*
        }
    };
}

fields! {
    // Memory.
    memory_usage_bytes: Live,
    memory_peak_bytes: Peak,
    memory_window_peak_bytes: Recent,
    memory_sampled_peak_bytes: Peak,
    memory_working_set_bytes: Live,
    memory_rss_bytes: Live,
    memory_cache_bytes: Live,
    memory_shmem_bytes: Live,
    memory_mapped_bytes: Live,
    memory_dirty_bytes: Live,
    memory_swap_bytes: Live,
    memory_zswap_bytes: Live,
    memory_kernel_bytes: Live,
    memory_limit_bytes: Limit,
    memory_high_bytes: Limit,
    memory_reservation_bytes: Limit,
    memory_limit_hits: TaskCounter,
    memory_high_events: TaskCounter,
    oom_kills: TaskCounter,
    oom_group_kills: TaskCounter,
    page_faults_minor: TaskCounter,
    page_faults_major: TaskCounter,
    workingset_refaults_anon: Counter,
    workingset_refaults_file: Counter,
    max_rss_bytes: TaskPeak,
    // CPU.
    cpu_usage_ns: Counter,
    cpu_user_ns: TaskCounter,
    cpu_system_ns: TaskCounter,
    cpu_cfs_periods: TaskCounter,
    cpu_cfs_throttled_periods: TaskCounter,
    cpu_throttled_ns: TaskCounter,
    cpu_burst_periods: TaskCounter,
    cpu_burst_ns: TaskCounter,
    cpu_quota_us: Limit,
    cpu_period_us: Limit,
    cpu_shares: Limit,
    cpu_weight: Limit,
    cpuset_cpus: Limit,
    // I/O.
    io_read_bytes: TaskCounter,
    io_written_bytes: TaskCounter,
    io_discarded_bytes: TaskCounter,
    io_reads: TaskCounter,
    io_writes: TaskCounter,
    // Processes.
    pids_current: Live,
    pids_peak: Peak,
    pids_limit: Limit,
    pids_limit_hits: TaskCounter,
    processes: TaskLive,
    open_fds: TaskLive,
    // Network.
    network_receive_bytes: TaskCounter,
    network_receive_packets: TaskCounter,
    network_receive_errors: TaskCounter,
    network_receive_drops: TaskCounter,
    network_transmit_bytes: TaskCounter,
    network_transmit_packets: TaskCounter,
    network_transmit_errors: TaskCounter,
    network_transmit_drops: TaskCounter,
    // Pressure.
    pressure_cpu_some_ns: Stall,
    pressure_cpu_full_ns: FullStall,
    pressure_memory_some_ns: Stall,
    pressure_memory_full_ns: FullStall,
    pressure_io_some_ns: Stall,
    pressure_io_full_ns: FullStall,
    pressure_irq_full_ns: FullStall,
}

impl Field {
    /// As its name says.
    pub const fn unit(self) -> Unit {
        match self.name().as_bytes() {
            [.., b'_', b'b', b'y', b't', b'e', b's'] => Unit::Bytes,
            [.., b'_', b'n', b's'] => Unit::Seconds,
            _ => Unit::None,
        }
    }
    const fn value(self) -> fn(u64) -> Value {
        if matches!(self.unit(), Unit::Seconds) { Value::Nanos } else { Value::Int }
    }
}

impl HasFields for Usage {
    type Field = Field;
}

impl Cell<Usage> {
    /// A field as it is.
    pub const fn of(field: Field, labels: &'static [(&'static str, &'static str)]) -> Cell<Usage> {
        Cell { labels, nature: field.nature(), unit: field.unit(), get: field.shown() }
    }
}

impl Measure<Usage> {
    /// Of one field, which gives its name, its unit and its nature.
    pub const fn of(field: Field, help: &'static str) -> Measure<Usage> {
        let mut measure = Measure::new(field.stem(), help, field.cells());
        measure.field = Some(field);
        // One more value must cost nothing where it was not requested.
        measure.profiles = Profiles::all(Profile::Full);
        measure
    }
}

/// A bit for each field: one word holds 64 of them, a second one comes with the next.
type FieldSet = Bits<{ words(Field::ALL.len()) }>;

/// The fields whose nature is such.
macro_rules! fields_where {
    ($nature:ident => $such:expr) => {{
        let (mut fields, mut n) = (FieldSet::NONE, 0);
        while n < Field::ALL.len() {
            let $nature = Field::ALL[n].nature();
            if $such {
                fields = fields.with(n);
            }
            n += 1;
        }
        fields
    }};
}

const COUNTS: FieldSet = fields_where!(nature => nature.counts());
const NEVER_FALLS: FieldSet = fields_where!(nature => nature.never_falls());
const GOES_WITH_THE_END: FieldSet = fields_where!(nature => nature.goes_with_the_end());
const IS_SUMMED: FieldSet = fields_where!(nature => nature.is_summed());
const ADDS_UP: FieldSet = fields_where!(nature => nature.adds_up());
const HOLDS_ITS_PARTS: FieldSet = fields_where!(nature => nature.holds_its_parts(false));
const HOLDS_ITS_ONLY_PART: FieldSet = fields_where!(nature => nature.holds_its_parts(true));
const PEAKS: FieldSet = NEVER_FALLS.minus(COUNTS);
const LIMITS: FieldSet = fields_where!(nature => !nature.never_falls() && !nature.goes_with_the_end());
/// What is used now and can be added: no highest value is the sum of others.
const USED_NOW: FieldSet = GOES_WITH_THE_END.and(ADDS_UP.or(IS_SUMMED));

/// One reading. Shape: integers in the unit that the field's name says (`_bytes`, `_ns`, `_us`; else a count).
/// Absent: this kernel, this hierarchy or this task has no such thing.
///
/// Each task is read, added and written at each tick: so one bit says which values are there, and what is done with
/// them is done with the bits of all fields of a nature at once. Serialized as a map of names.
#[derive(Clone, PartialEq, Eq)]
pub struct Usage {
    present: FieldSet,
    /// 0 where absent, so that equal usages are equal bytes, and adding or comparing needs no look at who is there.
    values: [u64; Field::ALL.len()],
}

/// Counted by each cgroup of its own limits; the first is present if it has a quota.
const OF_ITS_LIMITS: [Field; 7] = [
    Field::cpu_cfs_periods,
    Field::cpu_cfs_throttled_periods,
    Field::cpu_throttled_ns,
    Field::cpu_burst_periods,
    Field::cpu_burst_ns,
    Field::memory_limit_hits,
    Field::memory_high_events,
];

impl Usage {
    pub const fn get(&self, field: Field) -> Option<u64> {
        if self.present.has(field as usize) { Some(self.values[field as usize]) } else { None }
    }
    pub const fn set(&mut self, field: Field, value: Option<u64>) {
        let place = field as usize;
        match value {
            Some(value) => (self.present, self.values[place]) = (self.present.with(place), value),
            None => (self.present, self.values[place]) = (self.present.without(place), 0),
        }
    }
    #[must_use]
    pub const fn with(mut self, field: Field, value: u64) -> Usage {
        self.set(field, Some(value));
        self
    }

    /// This attempt on top of the earlier ones (`base`): counters add, peaks are the maximum, the rest is ours.
    /// A counter that one side lacks is the other side's value.
    #[must_use]
    pub fn on_top_of(&self, base: &Usage) -> Usage {
        let mut all = self.clone();
        all.add(base, COUNTS);
        // Nothing is higher than what is not there.
        all.raise(base, PEAKS.or(LIMITS.minus(self.present)));
        all
    }
    /// What stays when the processes are gone: everything but the live gauges.
    #[must_use]
    pub fn without_live(&self) -> Usage {
        self.without(GOES_WITH_THE_END)
    }
    /// Only what adds up over attempts and tasks: the counters.
    #[must_use]
    pub fn counters(&self) -> Usage {
        self.without(self.present.minus(COUNTS))
    }
    /// Adds another's counters to ours, nothing else.
    pub fn add_counters(&mut self, other: &Usage) {
        self.add(other, COUNTS);
    }
    /// What was counted since the earlier reading. Peaks are cleared: they may be from before it.
    pub fn count_from(&mut self, earlier: &Usage) {
        self.clear(PEAKS);
        for n in self.present.and(COUNTS).and(earlier.present).each() {
            self.values[n] = self.values[n].saturating_sub(earlier.values[n]);
        }
    }
    /// Counters never fall: each counter becomes the higher of ours and the earlier reading's.
    pub fn not_below(&mut self, earlier: &Usage) {
        self.raise(earlier, NEVER_FALLS);
    }
    /// Like [`Usage::not_below`], but what is absent now stays absent: for readings of one attempt.
    pub fn keep_rising(&mut self, earlier: &Usage) {
        self.raise(earlier, NEVER_FALLS.and(self.present));
    }
    /// Whether a counter or peak of ours is lower than the earlier reading's: then [`Usage::not_below`] changes it.
    #[must_use]
    pub fn falls_below(&self, earlier: &Usage) -> bool {
        let known = earlier.present.and(NEVER_FALLS);
        !known.minus(self.present).is_empty() || known.each().any(|n| self.values[n] < earlier.values[n])
    }
    /// Adds what can be added over tasks: counters and what is used now; never a peak or a limit.
    pub fn add_used(&mut self, other: &Usage) {
        self.add(other, COUNTS.or(USED_NOW));
    }
    /// Of an alloc's own cgroup: what only its tasks have becomes the sum over them.
    pub fn take_from_tasks(&mut self, sum: &Usage) {
        self.clear(IS_SUMMED);
        self.raise(sum, IS_SUMMED);
    }
    /// What a cgroup counts of its own limits: those inside of it do not have these values.
    pub fn counted_by_itself(&self) -> [Option<u64>; OF_ITS_LIMITS.len()] {
        OF_ITS_LIMITS.map(|field| self.get(field))
    }
    /// Of an alloc with the counts of its own cgroup, by [`Usage::counted_by_itself`]. With a quota of its own, these
    /// say how often the whole alloc was throttled. Its memory limits were hit at least as often as its own cgroup
    /// counted.
    pub fn limited_itself(&mut self, itself: &[Option<u64>; OF_ITS_LIMITS.len()]) {
        let has_quota = itself[0].is_some();
        for (field, own) in OF_ITS_LIMITS.into_iter().zip(itself) {
            match field {
                Field::memory_limit_hits | Field::memory_high_events => self.set(field, self.get(field).max(*own)),
                _ if has_quota => self.set(field, *own),
                _ => {}
            }
        }
    }
    /// Of an alloc whose cgroup was only ever charged by this part: what the part uses now, it uses.
    pub fn use_now_what(&mut self, part: &Usage) {
        self.clear(GOES_WITH_THE_END);
        self.raise(part, GOES_WITH_THE_END);
    }
    /// Of an alloc, whose own cgroup is read right after its tasks' and not in the same instant: what is the whole is
    /// not less than this part of it, and what the whole does not say of itself stays absent. `only`: it is the only
    /// part, and then what can be added up is there all the same.
    pub fn hold_part(&mut self, part: &Usage, only: bool) {
        let held =
            if only { HOLDS_ITS_ONLY_PART.and(self.present.or(ADDS_UP)) } else { HOLDS_ITS_PARTS.and(self.present) };
        self.raise(part, held);
    }
    /// The same of all its parts together.
    pub fn hold_sum(&mut self, sum: &Usage) {
        self.raise(sum, ADDS_UP);
    }
    /// Drops what is used now where the other does not know it: a sum that lacks a part is no sum.
    pub fn drop_live_unknown_to(&mut self, other: &Usage) {
        self.clear(USED_NOW.minus(other.present));
    }
    /// Drops what no task can have used, 292 years of CPU time or 8 EiB: added to a total it would hide everything
    /// else. Gives whether there was such a thing.
    pub fn drop_impossible(&mut self) -> bool {
        let impossible = self.present.each().filter(|n| self.values[*n] > i64::MAX.unsigned_abs());
        let impossible = impossible.fold(FieldSet::NONE, FieldSet::with);
        self.clear(impossible);
        !impossible.is_empty()
    }
    /// The fields that are present, with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.present.each().map(|n| (Field::ALL[n].name(), self.values[n]))
    }

    /// Of these fields the sum; what one side lacks is the other's.
    fn add(&mut self, other: &Usage, fields: FieldSet) {
        let there = other.present.and(fields);
        there.each().for_each(|n| self.values[n] = self.values[n].saturating_add(other.values[n]));
        self.present = self.present.or(there);
    }
    /// Of these fields the higher one; what one side lacks is the other's.
    fn raise(&mut self, other: &Usage, fields: FieldSet) {
        let there = other.present.and(fields);
        there.each().for_each(|n| self.values[n] = self.values[n].max(other.values[n]));
        self.present = self.present.or(there);
    }
    fn clear(&mut self, fields: FieldSet) {
        self.present.and(fields).each().for_each(|n| self.values[n] = 0);
        self.present = self.present.minus(fields);
    }
    fn without(&self, fields: FieldSet) -> Usage {
        let mut some = self.clone();
        some.clear(fields);
        some
    }
}

impl Default for Usage {
    fn default() -> Usage {
        Usage { present: FieldSet::NONE, values: [0; Field::ALL.len()] }
    }
}

impl<const N: usize> From<[(Field, u64); N]> for Usage {
    fn from(values: [(Field, u64); N]) -> Usage {
        values.into_iter().fold(Usage::default(), |usage, (field, value)| usage.with(field, value))
    }
}

impl fmt::Debug for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl JsonSchema for Usage {
    fn schema_name() -> Cow<'static, str> {
        "Usage".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let field = |field: Field| {
            let schema = json!({ "type": "integer", "minimum": 0, "description": field.nature().text() });
            (field.name().to_owned(), schema)
        };
        let properties: Map<String, Json> = Field::ALL.into_iter().map(field).collect();
        json_schema!({
            "type": "object",
            "description": "What was used, in the units that end the names. A field without a value is absent.",
            "properties": properties,
        })
    }
}

impl Serialize for Usage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Usage {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Usage, D::Error> {
        deserializer.deserialize_map(UsageVisitor)
    }
}

/// A usage as it is stored.
struct UsageVisitor;

impl<'de> Visitor<'de> for UsageVisitor {
    type Value = Usage;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of what was used")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Usage, A::Error> {
        let mut usage = Usage::default();
        while let Some(field) = map.next_key_seed(FieldNameVisitor)? {
            match field {
                Some(field) => usage.set(field, map.next_value()?),
                // What an agent of another version has is not ours to judge: refused, it would take the whole record
                // with it.
                None => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        Ok(usage)
    }
}

/// The name of a field, if it is one of ours.
struct FieldNameVisitor;

impl<'de> DeserializeSeed<'de> for FieldNameVisitor {
    type Value = Option<Field>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<Field>, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for FieldNameVisitor {
    type Value = Option<Field>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }
    fn visit_str<E: Error>(self, name: &str) -> Result<Option<Field>, E> {
        Ok(Field::named(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn usage_of_attempts_sums_counters_and_takes_the_highest_peak() {
        let base = Usage::from([
            (Field::cpu_usage_ns, 5),
            (Field::memory_peak_bytes, 100),
            (Field::memory_usage_bytes, 7),
            (Field::oom_kills, 1),
        ]);
        let now = Usage::from([(Field::cpu_usage_ns, 2), (Field::memory_peak_bytes, 30)]);
        let all = now.on_top_of(&base);
        assert_eq!(all.cpu_usage_ns(), Some(7));
        assert_eq!(all.memory_peak_bytes(), Some(100));
        assert_eq!(all.oom_kills(), Some(1));
        assert_eq!(all.memory_usage_bytes(), None, "a live value of an ended attempt is gone");
    }

    #[test]
    fn absent_is_not_zero_through_json() {
        let u = Usage::from([(Field::cpu_usage_ns, u64::MAX), (Field::oom_kills, 0)]);
        let text = serde_json::to_string(&u).unwrap();
        assert_eq!(text, r#"{"oom_kills":0,"cpu_usage_ns":18446744073709551615}"#);
        assert_eq!(serde_json::from_str::<Usage>(&text).unwrap(), u);
    }

    #[test]
    fn stored_usage_of_another_version_is_read_for_its_known_fields() {
        let text = r#"{"cpu_usage_ns":7,"of_another_version":{"a":[1]},"oom\u005fkills":1,"memory_usage_bytes":null}"#;
        let known = Usage::from([(Field::cpu_usage_ns, 7), (Field::oom_kills, 1)]);
        assert_eq!(serde_json::from_str::<Usage>(text).unwrap(), known);
        assert_eq!(serde_json::from_value::<Usage>(serde_json::from_str(text).unwrap()).unwrap(), known);
    }

    #[test]
    fn a_usage_is_a_value_for_each_field_and_a_bit_for_each() {
        assert_eq!(std::mem::size_of::<Usage>(), 8 * words(Field::ALL.len()) + 8 * Field::ALL.len());
        assert!(Field::ALL.iter().all(|field| Field::named(field.name()) == Some(*field)));
    }

    fn usages() -> impl Strategy<Value = Usage> {
        // Small ones too, so that equal ones and zeros come up.
        let value = prop_oneof![Just(None), (0..4_u64).prop_map(Some), any::<u64>().prop_map(Some)];
        prop::collection::vec(value, Field::ALL.len()).prop_map(|values| {
            let mut usage = Usage::default();
            Field::ALL.into_iter().zip(values).for_each(|(field, value)| usage.set(field, value));
            usage
        })
    }

    fn sum(a: Option<u64>, b: Option<u64>) -> Option<u64> {
        a.zip(b).map(|(a, b)| a.saturating_add(b)).or(a).or(b)
    }

    /// Field by field the same as `law` says of one field.
    fn holds(got: &Usage, law: impl Fn(Field) -> Option<u64>) {
        for field in Field::ALL {
            assert_eq!(got.get(field), law(field), "{} ({:?})", field.name(), field.nature());
        }
    }

    fn changed(usage: &Usage, change: impl FnOnce(&mut Usage)) -> Usage {
        let mut usage = usage.clone();
        change(&mut usage);
        usage
    }

    proptest! {
        /// What is done with the bits of many fields at once, said of one field.
        #[test]
        fn usage_operations_on_each_field_follow_its_nature(a in usages(), b in usages(), only: bool) {
            let lower = |f: Field| f.nature().never_falls() && a.get(f) < b.get(f);
            let used = |f: Field| f.nature().counts() || matches!(f.nature(), Nature::Live | Nature::TaskLive);
            holds(&a.on_top_of(&b), |f| match f.nature() {
                Nature::Live | Nature::TaskLive | Nature::Recent => a.get(f),
                Nature::Counter | Nature::TaskCounter | Nature::Stall | Nature::FullStall => sum(a.get(f), b.get(f)),
                Nature::Peak | Nature::TaskPeak => a.get(f).max(b.get(f)),
                Nature::Limit => a.get(f).or(b.get(f)),
            });
            holds(&a.without_live(), |f| a.get(f).filter(|_| !f.nature().goes_with_the_end()));
            holds(&a.counters(), |f| a.get(f).filter(|_| f.nature().counts()));
            holds(
                &changed(&a, |u| u.add_counters(&b)),
                |f| if f.nature().counts() { sum(a.get(f), b.get(f)) } else { a.get(f) },
            );
            holds(&changed(&a, |u| u.add_used(&b)), |f| if used(f) { sum(a.get(f), b.get(f)) } else { a.get(f) });
            holds(&changed(&a, |u| u.not_below(&b)), |f| if lower(f) { b.get(f) } else { a.get(f) });
            holds(
                &changed(&a, |u| u.keep_rising(&b)),
                |f| if lower(f) && a.get(f).is_some() { b.get(f) } else { a.get(f) },
            );
            prop_assert_eq!(a.falls_below(&b), Field::ALL.into_iter().any(lower));
            holds(
                &changed(&a, |u| u.take_from_tasks(&b)),
                |f| if f.nature().is_summed() { b.get(f) } else { a.get(f) },
            );
            let goes = |f: Field| f.nature().goes_with_the_end();
            holds(&changed(&a, |u| u.use_now_what(&b)), |f| if goes(f) { b.get(f) } else { a.get(f) });
            holds(&changed(&a, |u| u.hold_part(&b, only)), |f| match f.nature() {
                Nature::Live | Nature::Counter if only => a.get(f).max(b.get(f)),
                Nature::FullStall if !only => a.get(f),
                Nature::TaskCounter | Nature::TaskLive | Nature::TaskPeak | Nature::Limit => a.get(f),
                Nature::Live | Nature::Counter | Nature::Stall | Nature::FullStall | Nature::Peak | Nature::Recent => {
                    a.get(f).map(|total| total.max(b.get(f).unwrap_or(0)))
                }
            });
            holds(&changed(&a, |u| u.hold_sum(&b)), |f| match f.nature() {
                Nature::Live | Nature::Counter => a.get(f).max(b.get(f)),
                _ => a.get(f),
            });
            holds(&changed(&a, |u| u.drop_live_unknown_to(&b)), |f| match f.nature() {
                Nature::Live | Nature::TaskLive => a.get(f).filter(|_| b.get(f).is_some()),
                _ => a.get(f),
            });
            let possible = |f: &Field| a.get(*f).filter(|n| *n <= i64::MAX.unsigned_abs());
            holds(&changed(&a, |u| _ = u.drop_impossible()), |f| possible(&f));
            prop_assert_eq!(a.clone().drop_impossible(), Field::ALL.iter().any(|f| possible(f) != a.get(*f)));
            let text = serde_json::to_string(&a).unwrap();
            prop_assert_eq!(serde_json::from_str::<Usage>(&text).unwrap(), a);
        }
    }
}
