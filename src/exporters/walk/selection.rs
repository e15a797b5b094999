//! What is exposed at all: a profile, and what is added to it and taken from it. Who pays for each series sets it once,
//! for everybody who scrapes.

use std::fmt;

use regex::Regex;

use super::subject::Labels;
use crate::model::metric::MetricDesc;
use crate::model::profile::Profile;

/// The default is `standard`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    pub profile: Profile,
    /// There whatever the profile.
    pub include: Vec<Pattern>,
    /// Never there, even if it is included.
    pub exclude: Vec<Pattern>,
}

impl Default for Selection {
    fn default() -> Selection {
        Selection::of(Profile::Standard)
    }
}

impl Selection {
    pub fn of(profile: Profile) -> Selection {
        Selection { profile, include: Vec::new(), exclude: Vec::new() }
    }

    /// Whether it has series of the family. `by_name`: a request names it, so that no profile hides it.
    pub fn has(&self, desc: &MetricDesc, by_name: bool) -> bool {
        let included = || self.include.iter().any(|pattern| pattern.names(desc.name));
        (by_name || desc.profile <= self.profile || included()) && !self.excludes(desc.name)
    }

    fn excludes(&self, name: &str) -> bool {
        self.exclude.iter().any(|pattern| pattern.label.is_none() && pattern.names(name))
    }

    /// What it leaves out of a family that it has; `None`: nothing.
    pub fn left_out(&self, desc: &MetricDesc, by_name: bool, cells: &[Labels<'_>]) -> Option<LeftOut> {
        let of = |patterns: &'_ [Pattern]| -> Vec<Pattern> {
            patterns.iter().filter(|pattern| pattern.names(desc.name)).cloned().collect()
        };
        let (include, exclude) = (of(&self.include), of(&self.exclude));
        let whole = by_name || desc.profile <= self.profile;
        let is_requested = by_name || include.iter().any(|pattern| pattern.label.is_none());
        let is_exposed = |cell: &Labels<'_>| {
            (whole || include.iter().any(|pattern| pattern.matches(cell)))
                && !exclude.iter().any(|pattern| pattern.matches(cell))
        };
        let exposed: Vec<bool> = cells.iter().map(is_exposed).collect();
        let zeros = desc.zeros > self.profile && !is_requested;
        (zeros || exposed.contains(&false)).then_some(LeftOut { exposed, zeros })
    }
}

/// What of a family is not exposed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// Of each cell whether it is.
    pub exposed: Vec<bool>,
    /// Those that are at 0 are not.
    pub zeros: bool,
}

/// Families by name, and of these the series with one label: `allostat_task_io_.*`,
/// `allostat_task_state{state="dead"}`. Name and value after `=~` are anchored regular expressions, as in Prometheus.
#[derive(Clone)]
pub struct Pattern {
    text: String,
    name: Regex,
    label: Option<(String, Regex)>,
}

impl Pattern {
    /// Errors: it is no such pattern, in a sentence.
    pub fn parse(text: &str) -> Result<Pattern, String> {
        let (name, label) = match text.strip_suffix('}').and_then(|rest| rest.split_once('{')) {
            Some((name, matcher)) => (name, Some(label(text, matcher)?)),
            None => (text, None),
        };
        Ok(Pattern { text: text.to_owned(), name: anchored(name)?, label })
    }
    pub fn names(&self, family: &str) -> bool {
        self.name.is_match(family)
    }
    /// The label whose value selects series of a family.
    pub fn label(&self) -> Option<&str> {
        self.label.as_ref().map(|(label, _)| label.as_str())
    }
    /// Whether it means this cell of a family that it names.
    fn matches(&self, cell: &Labels<'_>) -> bool {
        let Some((label, requested)) = &self.label else { return true };
        cell.iter().any(|(name, value)| name == label && requested.is_match(value))
    }
}

fn anchored(text: &str) -> Result<Regex, String> {
    Regex::new(&format!("^(?:{text})$")).map_err(|_| format!("{text:?} is no regular expression"))
}

/// `state="dead"`, `state=~"pending|dead"`.
fn label(text: &str, matcher: &str) -> Result<(String, Regex), String> {
    let wrong =
        || format!("{text:?} is no selection: write name, name{{label=\"value\"}} or name{{label=~\"expression\"}}");
    let (label, rest) = matcher.split_once('=').ok_or_else(wrong)?;
    let (is_expression, rest) = rest.strip_prefix('~').map_or((false, rest), |rest| (true, rest));
    let value = rest.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).ok_or_else(wrong)?;
    let is_name = !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !is_name || value.contains('"') {
        return Err(wrong());
    }
    let value = if is_expression { anchored(value)? } else { anchored(&regex::escape(value))? };
    Ok((label.to_owned(), value))
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Pattern) -> bool {
        self.text == other.text
    }
}

impl Eq for Pattern {}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::units::Unit;

    static STATES: MetricDesc = MetricDesc::gauge("allostat_task_state", Unit::None, "", &["state"])
        .from_profile(Profile::Standard)
        .zeros_from(Profile::Standard);
    static FAULTS: MetricDesc =
        MetricDesc::counter("allostat_task_page_faults_total", Unit::None, "", &["kind"]).from_profile(Profile::Full);

    fn selection(profile: Profile, include: &[&str], exclude: &[&str]) -> Selection {
        let all = |texts: &[&str]| texts.iter().map(|text| Pattern::parse(text).unwrap()).collect();
        Selection { profile, include: all(include), exclude: all(exclude) }
    }

    fn exposed(of: &Selection, desc: &MetricDesc, label: &str, values: [&str; 2]) -> Option<(Vec<bool>, bool)> {
        let cells = values.map(|value| vec![(label, value)]);
        of.left_out(desc, false, &cells).map(|left| (left.exposed, left.zeros))
    }

    #[test]
    fn a_profile_has_its_families_and_those_of_the_smaller_ones() {
        for (profile, has) in [(Profile::Lean, false), (Profile::Standard, false), (Profile::Full, true)] {
            assert_eq!(Selection::of(profile).has(&FAULTS, false), has, "{profile:?}");
            assert!(Selection::of(profile).has(&FAULTS, true), "asked for by name");
            assert_eq!(Selection::of(profile).has(&STATES, false), profile >= Profile::Standard);
        }
    }

    #[test]
    fn excluded_family_is_absent_whatever_includes_it() {
        let both = selection(Profile::Full, &["allostat_task_state"], &["allostat_.*_state"]);
        assert!(!both.has(&STATES, false) && !both.has(&STATES, true) && both.has(&FAULTS, false));
    }

    #[test]
    fn a_family_is_included_whole_or_by_a_label() {
        let some = selection(Profile::Lean, &["allostat_task_page_faults_total{kind=\"major\"}"], &[]);
        assert!(some.has(&FAULTS, false));
        assert_eq!(exposed(&some, &FAULTS, "kind", ["major", "minor"]), Some((vec![true, false], false)));
        let whole = selection(Profile::Lean, &["allostat_task_(page_faults_total|state)"], &[]);
        assert_eq!(exposed(&whole, &FAULTS, "kind", ["major", "minor"]), None);
        assert_eq!(exposed(&whole, &STATES, "state", ["running", "dead"]), None, "with its zeros");
    }

    #[test]
    fn series_are_taken_out_by_a_label_and_zeros_by_the_profile() {
        let without = selection(Profile::Standard, &[], &["allostat_task_state{state=~\"de.*\"}"]);
        assert_eq!(exposed(&without, &STATES, "state", ["running", "dead"]), Some((vec![true, false], false)));
        let lean = selection(Profile::Lean, &["allostat_task_state{state=\"dead\"}"], &[]);
        assert_eq!(exposed(&lean, &STATES, "state", ["running", "dead"]), Some((vec![false, true], true)));
    }

    #[test]
    fn invalid_selection_pattern_is_refused_with_the_expected_form() {
        for odd in ["a{b}", "a{=\"c\"}", "a{b=c}", "a{b=\"c}", "a{b=\"c\"d\"}"] {
            let message = Pattern::parse(odd).unwrap_err();
            assert!(message.contains("name{label=\"value\"}"), "{message}");
        }
        assert!(Pattern::parse("a(b").unwrap_err().contains("regular expression"));
        assert!(Pattern::parse("a.b").unwrap().names("a_b") && !Pattern::parse("a").unwrap().names("ab"), "anchored");
    }
}
