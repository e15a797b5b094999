//! What a setting is: its words, what its value may be, and where that goes.

use std::time::Duration;

use super::Config;
use super::values::{duration, list};

/// One thing that can be set.
pub struct Setting {
    /// `agent` of `agent.data_dir`: settings of one stanza stand together.
    pub stanza: &'static str,
    pub key: &'static str,
    pub env: &'static str,
    /// Stands above it in the printed configuration.
    pub about: &'static str,
    pub(super) kind: SettingKind,
    /// See [`Setting::get`].
    pub(super) get: fn(&Config) -> Option<String>,
}

/// What its value is, and where that goes.
pub(super) enum SettingKind {
    Text(fn(&mut Config, &str) -> Result<(), String>),
    /// A list in the file, separated by commas elsewhere.
    Texts(fn(&mut Config, Vec<String>) -> Result<(), String>),
    Duration(Duration, Duration, fn(&mut Config, Duration)),
    Whole(u64, u64, fn(&mut Config, u64)),
    Bool(fn(&mut Config, bool)),
    /// Text that a driver understands: the setting's stanza is its name.
    OfDriver(fn(&str) -> Result<(), String>),
}

impl Setting {
    /// As text that can be read again; `None`: not set.
    pub(super) fn get(&self, config: &Config) -> Option<String> {
        match self.kind {
            SettingKind::OfDriver(_) => config.drivers.settings.get(&(self.stanza, self.key)).cloned(),
            _ => (self.get)(config),
        }
    }

    /// Errors: the value cannot be, in a sentence without its name.
    pub(super) fn set(&self, config: &mut Config, text: &str) -> Result<(), String> {
        match self.kind {
            SettingKind::Text(put) => put(config, text),
            SettingKind::Texts(put) => put(config, list(text)),
            SettingKind::Duration(least, most, put) => duration(text, least, most).map(|value| put(config, value)),
            SettingKind::Whole(least, most, put) => {
                let value = text.parse().ok().filter(|n| (least..=most).contains(n));
                let value = value.ok_or_else(|| format!("a whole number between {least} and {most} is wanted"))?;
                put(config, value);
                Ok(())
            }
            SettingKind::Bool(put) => {
                put(config, text.to_lowercase().parse().map_err(|_| "must be true or false".to_owned())?);
                Ok(())
            }
            SettingKind::OfDriver(check) => {
                check(text)?;
                config.drivers.settings.insert((self.stanza, self.key), text.to_owned());
                Ok(())
            }
        }
    }
}

pub(super) const A_DAY: Duration = Duration::from_secs(86_400);
pub(super) const TEN_YEARS: Duration = Duration::from_secs(3_650 * 86_400);
