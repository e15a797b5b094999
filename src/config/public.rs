//! The setting of what plain TCP tells.

use super::{Kind, Setting};
use crate::api::Public;

pub(super) const PUBLIC: Setting = Setting {
    stanza: "telemetry",
    key: "public",
    env: "ALLOSTAT_TELEMETRY_PUBLIC",
    about: "What plain HTTP tells everybody who can connect. \"metrics\": /metrics and health; \"read\": what the commands read as \
            well, without users, processes and places on this host; \"none\": health.",
    kind: Kind::Text,
    set: |c, text| {
        c.api.public = Public::parse(text).ok_or_else(|| {
            let known = Public::ALL.map(Public::as_str).join(", ");
            format!("{text:?} is none of {known}")
        })?;
        Ok(())
    },
    get: |c| Some(c.api.public.as_str().to_owned()),
};
