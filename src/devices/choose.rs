//! Selects the devices for a task's requests, or gives the reason why it cannot. Pure.
//!
//! ```text
//! each request ── name matches, constraints hold, healthy, free ──► candidate groups, best first ──┐
//!        all requests together: one group per request, one device per slot ◄─────────────────────────┘ or none at all
//! ```
//! All devices of one request come from one group. If two requests compete for the same devices, one of them takes
//! others where it can.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::matching::{OfferedDevice, is_called};
use crate::model::demand::{Constraint, DeviceName, DeviceRequest};
use crate::model::device::{Device, DeviceGroup, DeviceHolder, DeviceKind};
use crate::model::id::DeviceId;

/// Why no devices were selected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChooseError {
    #[error("this host has no {name}{}", listed("; it has ", known))]
    NoSuchDevice { name: DeviceName, known: Vec<DeviceKind> },
    #[error("no {name} meets the constraints{}", listed(": ", unmet))]
    Unmet { name: DeviceName, unmet: Vec<UnmetConstraint> },
    #[error("requested {requested} of {name}; no suitable group has more than {there}")]
    TooFew { name: DeviceName, requested: u32, there: usize },
    #[error("requested {requested} of {name}; only {well} healthy{}", listed(": ", unhealthy))]
    Unhealthy { name: DeviceName, requested: u32, well: usize, unhealthy: Vec<UnhealthyDevice> },
    #[error("requested {requested} of {name}; only {free} free{}", listed(": ", held))]
    Held { name: DeviceName, requested: u32, free: usize, held: Vec<HeldDevice> },
    #[error("each request alone could be satisfied, but not all of them together")]
    Together,
}

/// The first constraint that no device of a group meets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnmetConstraint {
    pub kind: DeviceKind,
    pub constraint: Constraint,
    /// The value of the attribute. `None`: the plugin does not report it.
    pub is: Option<String>,
}

/// A device that is unhealthy, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnhealthyDevice {
    pub device: DeviceId,
    pub why: String,
}

/// A device that another task holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldDevice {
    pub device: DeviceId,
    pub by: DeviceHolder,
}

impl fmt::Display for UnmetConstraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is = self.is.as_deref().unwrap_or("unknown");
        write!(f, "{}: {} (actual: {is})", self.kind, self.constraint)
    }
}

impl fmt::Display for UnhealthyDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.device, self.why)
    }
}

impl fmt::Display for HeldDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is held by {}", self.device, self.by)
    }
}

/// Maximum number of items that a message lists.
const NAMED: usize = 5;

fn listed(before: &str, items: &[impl fmt::Display]) -> String {
    if items.is_empty() {
        return String::new();
    }
    let named = items.iter().take(NAMED).map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let more = items.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{before}{named}{more}")
}

/// A group that can satisfy a request.
struct GroupCandidate<'a> {
    kind: &'a DeviceKind,
    score: i64,
    /// Best first.
    devices: Vec<&'a DeviceId>,
}

/// Selects the devices for all requests, in their order. Deterministic. Of a request with options the first one counts
/// that can be satisfied beside the requests without options and those before it.
///
/// Errors: not all requests can be satisfied together. Nothing is reserved then.
pub fn choose(
    groups: &[&DeviceGroup],
    requests: &[DeviceRequest],
    holder: impl Fn(&DeviceId) -> Option<DeviceHolder>,
) -> Result<Vec<DeviceId>, ChooseError> {
    let offers = DeviceOffers::of(groups);
    let mut picked: Vec<Option<DeviceRequest>> =
        requests.iter().map(|request| request.first_available.is_empty().then(|| request.clone())).collect();
    for (at, request) in requests.iter().enumerate().filter(|(_, request)| !request.first_available.is_empty()) {
        let options = request.options();
        let fits = |option: &&DeviceRequest| {
            let with: Vec<DeviceRequest> = picked.iter().flatten().chain([*option]).cloned().collect();
            choose_all(&offers, &with, &holder).is_ok()
        };
        // Without one that fits, the error is that of the first.
        let option = options.iter().find(fits).or(options.first()).cloned();
        picked[at] = option;
    }
    let picked: Vec<DeviceRequest> = picked.into_iter().flatten().collect();
    choose_all(&offers, &picked, &holder)
}

/// None of the requests has options.
fn choose_all(
    offers: &DeviceOffers<'_>,
    requests: &[DeviceRequest],
    holder: &impl Fn(&DeviceId) -> Option<DeviceHolder>,
) -> Result<Vec<DeviceId>, ChooseError> {
    let fits = requests.iter().map(|request| {
        let fits = offers.fits(request, holder);
        if fits.is_empty() { Err(offers.refuse(request, holder)) } else { Ok(fits) }
    });
    let fits = fits.collect::<Result<Vec<_>, _>>()?;
    let counts: Vec<usize> = requests.iter().map(requested_count).collect();
    let places = SlotMatching::default().filled(&fits, &counts).ok_or(ChooseError::Together)?;
    Ok(places.taken().into_iter().cloned().collect())
}

fn requested_count(request: &DeviceRequest) -> usize {
    usize::try_from(request.count).unwrap_or(usize::MAX)
}

/// The device groups, each with the devices that can be reserved whole.
struct DeviceOffers<'a>(Vec<(&'a DeviceGroup, Vec<&'a Device>)>);

impl<'a> DeviceOffers<'a> {
    fn of(groups: &[&'a DeviceGroup]) -> DeviceOffers<'a> {
        // A partitioned device is reserved by its instances.
        let divided: BTreeSet<&DeviceId> =
            groups.iter().flat_map(|group| &group.devices).filter_map(|device| device.facts.parent.as_ref()).collect();
        let mut offers: Vec<_> = groups
            .iter()
            .map(|group| (*group, group.devices.iter().filter(|device| !divided.contains(&device.id)).collect()))
            .filter(|(_, devices): &(_, Vec<_>)| !devices.is_empty())
            .collect();
        offers.sort_by(|(a, _), (b, _)| a.kind.cmp(&b.kind));
        DeviceOffers(offers)
    }

    /// The groups with a matching name, each with the devices that pass the filter.
    fn pass(
        &self,
        request: &DeviceRequest,
        passes: impl Fn(&DeviceGroup, &Device) -> bool,
    ) -> Vec<(&'a DeviceGroup, Vec<&'a Device>)> {
        let called = self.0.iter().filter(|(group, _)| is_called(&request.name, &group.kind));
        let passed = |(group, devices): &(&'a DeviceGroup, Vec<&'a Device>)| {
            (*group, devices.iter().copied().filter(|device| passes(group, device)).collect::<Vec<_>>())
        };
        called.map(passed).filter(|(_, devices)| !devices.is_empty()).collect()
    }

    fn fits(
        &self,
        request: &DeviceRequest,
        holder: &impl Fn(&DeviceId) -> Option<DeviceHolder>,
    ) -> Vec<GroupCandidate<'a>> {
        let free = |group: &DeviceGroup, device: &Device| {
            device.unhealthy.is_none() && meets(request, group, device) && holder(&device.id).is_none()
        };
        let enough =
            self.pass(request, free).into_iter().filter(|(_, devices)| devices.len() >= requested_count(request));
        let mut fits: Vec<GroupCandidate<'_>> = enough.map(|(group, devices)| fit(request, group, devices)).collect();
        fits.sort_by_key(|fit| (Reverse(fit.score), fit.kind));
        fits
    }

    /// The reason why no group fits: the first condition that fails.
    fn refuse(&self, request: &DeviceRequest, holder: &impl Fn(&DeviceId) -> Option<DeviceHolder>) -> ChooseError {
        let (name, required) = (request.name.clone(), request.count);
        let most = |of: &[(&DeviceGroup, Vec<&Device>)]| of.iter().map(|(_, devices)| devices.len()).max().unwrap_or(0);
        let enough = |there: usize| there >= self::requested_count(request);
        let called = self.pass(request, |_, _| true);
        if called.is_empty() {
            return ChooseError::NoSuchDevice {
                name,
                known: self.0.iter().map(|(group, _)| group.kind.clone()).collect(),
            };
        }
        let good = self.pass(request, |group, device| meets(request, group, device));
        if good.is_empty() {
            return ChooseError::Unmet {
                name,
                unmet: called.iter().filter_map(|(g, devices)| unmet(request, g, devices)).collect(),
            };
        }
        if !enough(most(&good)) {
            return ChooseError::TooFew { name, requested: required, there: most(&good) };
        }
        let well = most(&self.pass(request, |g, d| meets(request, g, d) && d.unhealthy.is_none()));
        let all = || good.iter().flat_map(|(_, devices)| devices);
        if !enough(well) {
            let unhealthy_device =
                |d: &&Device| Some(UnhealthyDevice { device: d.id.clone(), why: d.unhealthy.clone()? });
            return ChooseError::Unhealthy {
                name,
                requested: required,
                well,
                unhealthy: all().filter_map(unhealthy_device).collect(),
            };
        }
        let is_free = |d: &Device| d.unhealthy.is_none() && holder(&d.id).is_none();
        let free = most(&self.pass(request, |g, d| meets(request, g, d) && is_free(d)));
        let held = all().filter_map(|d| Some(HeldDevice { device: d.id.clone(), by: holder(&d.id)? })).collect();
        ChooseError::Held { name, requested: required, free, held }
    }
}

fn offer<'a>(group: &'a DeviceGroup, device: &'a Device) -> OfferedDevice<'a> {
    OfferedDevice { group, device }
}

fn meets(request: &DeviceRequest, group: &DeviceGroup, device: &Device) -> bool {
    request.constraints.iter().all(|constraint| offer(group, device).meets(constraint))
}

fn unmet(request: &DeviceRequest, group: &DeviceGroup, devices: &[&Device]) -> Option<UnmetConstraint> {
    let first = offer(group, devices.first()?);
    let fails = |constraint: &&Constraint| !devices.iter().any(|device| offer(group, device).meets(constraint));
    // If each constraint is met by some device but none meets all, the first that this device fails.
    let constraint = request.constraints.iter().find(fails);
    let constraint = constraint.or_else(|| request.constraints.iter().find(|constraint| !first.meets(constraint)))?;
    let is = first.property(&constraint.attribute).map(|is| is.to_string());
    Some(UnmetConstraint { kind: group.kind.clone(), constraint: constraint.clone(), is })
}

fn fit<'a>(request: &DeviceRequest, group: &'a DeviceGroup, devices: Vec<&'a Device>) -> GroupCandidate<'a> {
    let mut scored: Vec<_> = devices.into_iter().map(|device| (offer(group, device).score(request), device)).collect();
    let place = |device: &Device| device.facts.index.unwrap_or(u32::MAX);
    scored.sort_by_key(|(score, device)| (Reverse(*score), place(device), &device.id));
    let score = scored.iter().take(requested_count(request)).map(|(score, _)| score).sum();
    GroupCandidate { kind: &group.kind, score, devices: scored.into_iter().map(|(_, device)| &device.id).collect() }
}

/// Slots to fill, each with one of its candidates, no device twice (bipartite matching).
#[derive(Clone, Default)]
struct SlotMatching<'f, 'a> {
    candidates: Vec<&'f [&'a DeviceId]>,
    taken_by: BTreeMap<&'a DeviceId, usize>,
}

impl<'f, 'a> SlotMatching<'f, 'a> {
    /// Assigns a group to each remaining request, preferring the best. `None`: no combination works.
    fn filled(self, fits: &'f [Vec<GroupCandidate<'a>>], counts: &[usize]) -> Option<SlotMatching<'f, 'a>> {
        let (Some((first, rest)), Some((count, counts))) = (fits.split_first(), counts.split_first()) else {
            return Some(self);
        };
        first.iter().find_map(|fit| {
            let mut places = self.clone();
            (0..*count).all(|_| places.add(&fit.devices)).then(|| places.filled(rest, counts))?
        })
    }

    fn add(&mut self, candidates: &'f [&'a DeviceId]) -> bool {
        self.candidates.push(candidates);
        self.fill(self.candidates.len() - 1, &mut BTreeSet::new())
    }

    /// Fills the slot with a free device, or with one whose slot can take another device (augmenting path).
    fn fill(&mut self, place: usize, seen: &mut BTreeSet<&'a DeviceId>) -> bool {
        let candidates = self.candidates[place];
        let free = candidates.iter().find(|id| !self.taken_by.contains_key(*id));
        let mut rest = candidates.iter().filter(|_| free.is_none());
        let won = free.or_else(|| {
            rest.find(|id| {
                let other = self.taken_by.get(*id).copied();
                seen.insert(id) && other.is_some_and(|other| self.fill(other, seen))
            })
        });
        if let Some(id) = won {
            self.taken_by.insert(id, place);
        }
        won.is_some()
    }

    /// In slot order.
    fn taken(&self) -> Vec<&'a DeviceId> {
        let mut taken: Vec<(usize, &DeviceId)> = self.taken_by.iter().map(|(id, place)| (*place, *id)).collect();
        taken.sort_unstable();
        taken.into_iter().map(|(_, id)| id).collect()
    }
}

#[cfg(test)]
#[path = "choose_tests.rs"]
pub(super) mod tests;
