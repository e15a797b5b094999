//! What goes wrong: in which calls, on which device, and how.

use serde::{Deserialize, Serialize};

use crate::codes::Code;

/// Befalls the calls that it names, counted from the moment at which it stood in the scenario.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// The position of the device; `None` for any, and for calls that are of none.
    #[serde(default)]
    pub device: Option<usize>,
    /// `nvmlDeviceGetName`; `None` for any.
    #[serde(default)]
    pub function: Option<String>,
    /// So many calls go well before.
    #[serde(default)]
    pub after: u64,
    /// So many are befallen then; `None` for all.
    #[serde(default)]
    pub times: Option<u64>,
    pub does: Effect,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Answers this code.
    Answers(Code),
    /// Takes so much longer.
    SlowMs(u64),
    /// Does not come back while this fault stands in the scenario.
    Hangs,
    /// A list is so much longer at each call than at the one before.
    Grows(u32),
    /// A list reports this count, and has no items.
    Claims(u32),
    /// Ends the process that called.
    Aborts,
}

impl Fault {
    fn new(function: Option<&str>, does: Effect) -> Fault {
        Fault { device: None, function: function.map(str::to_owned), after: 0, times: None, does }
    }
    #[must_use]
    pub fn answers(function: &str, code: Code) -> Fault {
        Fault::new(Some(function), Effect::Answers(code))
    }
    #[must_use]
    pub fn slow(function: &str, milliseconds: u64) -> Fault {
        Fault::new(Some(function), Effect::SlowMs(milliseconds))
    }
    #[must_use]
    pub fn hangs(function: &str) -> Fault {
        Fault::new(Some(function), Effect::Hangs)
    }
    #[must_use]
    pub fn grows(function: &str, by: u32) -> Fault {
        Fault::new(Some(function), Effect::Grows(by))
    }
    #[must_use]
    pub fn claims(function: &str, count: u32) -> Fault {
        Fault::new(Some(function), Effect::Claims(count))
    }
    #[must_use]
    pub fn aborts(function: &str) -> Fault {
        Fault::new(Some(function), Effect::Aborts)
    }
    /// The same in every call: of one device with [`Fault::on`].
    #[must_use]
    pub fn everywhere(mut self) -> Fault {
        self.function = None;
        self
    }
    #[must_use]
    pub fn on(mut self, device: usize) -> Fault {
        self.device = Some(device);
        self
    }
    #[must_use]
    pub fn after(mut self, calls: u64) -> Fault {
        self.after = calls;
        self
    }
    #[must_use]
    pub fn times(mut self, calls: u64) -> Fault {
        self.times = Some(calls);
        self
    }

    pub(crate) fn concerns(&self, function: &str, device: Option<usize>) -> bool {
        self.function.as_deref().is_none_or(|named| named == function)
            && self.device.is_none_or(|named| device == Some(named))
    }
    /// Whether it befalls the call of this number, of those that concern it; the first is 1.
    pub(crate) fn befalls(&self, call: u64) -> bool {
        call > self.after && self.times.is_none_or(|times| call - self.after <= times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_befalls_the_calls_that_it_names() {
        let fault = Fault::hangs("nvmlDeviceGetName").on(1).after(2).times(2);
        assert!(fault.concerns("nvmlDeviceGetName", Some(1)));
        assert!(!fault.concerns("nvmlDeviceGetName", Some(0)) && !fault.concerns("nvmlDeviceGetName", None));
        assert!(!fault.concerns("nvmlDeviceGetUUID", Some(1)));
        let befallen: Vec<u64> = (1..=6).filter(|call| fault.befalls(*call)).collect();
        assert_eq!(befallen, [3, 4]);
    }

    #[test]
    fn a_fault_of_any_call_is_one_of_its_device() {
        let fault = Fault::slow("nvmlDeviceGetName", 1).everywhere();
        assert!(fault.concerns("nvmlInit_v2", None) && fault.concerns("nvmlDeviceGetUUID", Some(3)));
        assert!(!fault.clone().on(2).concerns("nvmlDeviceGetUUID", Some(3)));
        assert!(fault.befalls(1) && fault.befalls(1_000_000));
    }
}
