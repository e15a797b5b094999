//! `device` stanzas: which devices a task asks for, and what of them.

use super::build::Builder;
use super::diagnostic::{Span, quote};
use super::fields::{Fields, NamedBody, Spanned};
use super::template::{InterpolationPart, parts};
use super::tree::StanzaBody;
use super::{limits, placing, tree, words};
use crate::model::demand::{Affinity, Constraint, DeviceName, DeviceOption, DeviceRequest, Property};
use crate::model::nearest::nearest;

impl Builder<'_> {
    pub(super) fn devices(&self, resources: &Fields<'_>) -> Vec<DeviceRequest> {
        let requests: Vec<NamedBody<'_>> = resources.named("device");
        if let Some(one_more) = requests.get(limits::DEVICES) {
            let message = format!("a task requests devices in at most {} stanzas", limits::DEVICES);
            resources.error(one_more.name_span, "device", message, None);
        }
        requests.iter().filter_map(|device| self.device(device, resources)).collect()
    }

    fn device(&self, device: &NamedBody<'_>, resources: &Fields<'_>) -> Option<DeviceRequest> {
        let path = format!("{}.{}", resources.path_of("device"), device.name);
        let fields = self.open(device.body, &words::DEVICE, path.clone());
        let name = DeviceName::parse(device.name);
        if let Err(error) = &name {
            let advice = format!("{error}: `gpu`, `nvidia/gpu`, `nvidia/gpu/Tesla T4`");
            let message = format!("{} names no devices", quote(device.name));
            self.problems.error(device.name_span, &path, message, Some(advice));
        }
        let DeviceOption { count, constraints, affinities } = self.device_option(&fields, 1);
        let stanzas = fields.stanzas("first_available");
        if let Some((one_more, _)) = stanzas.get(limits::DEVICES) {
            let message = format!("a device has at most {} options", limits::DEVICES);
            fields.error(one_more, "first_available", message, None);
        }
        let options = stanzas.into_iter().enumerate().map(|(at, (_, body))| {
            let path = fields.path_of(&format!("first_available[{at}]"));
            self.device_option(&self.open(body, &words::DEVICE_OPTION, path), count)
        });
        Some(DeviceRequest { first_available: options.collect(), count, constraints, affinities, name: name.ok()? })
    }

    /// `count`: where the stanza has none.
    fn device_option(&self, fields: &Fields<'_>, count: u32) -> DeviceOption {
        let given = fields.integer("count", 1..=limits::DEVICE_COUNT);
        let constraints = fields.stanzas("constraint").into_iter();
        let affinities = fields.stanzas("affinity").into_iter();
        DeviceOption {
            count: given.map_or(count, |at| u32::try_from(at.value).unwrap_or(u32::MAX)),
            constraints: constraints.filter_map(|(key, body)| self.device_constraint(key, body, fields)).collect(),
            affinities: affinities.filter_map(|(key, body)| self.device_affinity(key, body, fields)).collect(),
        }
    }

    fn device_constraint(&self, key: &Span, body: &StanzaBody, device: &Fields<'_>) -> Option<Constraint> {
        constraint(key, &self.open(body, &words::DEVICE_CONSTRAINT, device.path_of("constraint")))
    }

    fn device_affinity(&self, key: &Span, body: &StanzaBody, device: &Fields<'_>) -> Option<Affinity> {
        let fields = self.open(body, &words::ANY_AFFINITY, device.path_of("affinity"));
        let weight = placing::weight(&fields);
        constraint(key, &fields).map(|constraint| Affinity { constraint, weight })
    }
}

/// What a constraint and an affinity have in common. `key`: where the stanza begins, for what is missing in it.
fn constraint(key: &Span, fields: &Fields<'_>) -> Option<Constraint> {
    let attribute = attribute(key, fields);
    let (operator, value) = placing::operator_and_value(key, fields)?;
    let attribute = attribute?;
    if tree::plain(&value.value).is_none() {
        let advice = Some("for the two characters themselves write `$${`".to_owned());
        fields.error(&value.span, "value", "the value of a device's attribute takes no `${...}`", advice);
        return None;
    }
    let constraint = Constraint { attribute, operator, value: value.value };
    if let Err(error) = constraint.check() {
        let message =
            format!("{} cannot be compared by {}: {error}", quote(&constraint.value), quote(operator.as_str()));
        fields.error(&value.span, "value", message, Some(placing::comparable(operator).to_owned()));
    }
    Some(constraint)
}

fn attribute(key: &Span, fields: &Fields<'_>) -> Option<Property> {
    const ADVICE: &str =
        "refer to ${device.attr.*}, ${device.model}, ${device.vendor}, ${device.type} or ${device.ids}";
    if fields.entry("attribute").is_none() {
        let stanza = fields.path().rsplit('.').next().unwrap_or_default();
        let advice = Some("add attribute = \"${device.attr.memory}\"".to_owned());
        fields.error(key, "attribute", format!("the {} has no `attribute`", quote(stanza)), advice);
    }
    let Spanned { value, span } = fields.template("attribute")?;
    let reference = match parts(&value).as_slice() {
        [InterpolationPart::Reference(reference, _)] => (*reference).to_owned(),
        _ => value.clone(),
    };
    let property = Property::parse(&reference).filter(|_| reference != value);
    if property.is_none() {
        let near = nearest(&reference, Property::words()).map(|word| format!("did you mean `${{{word}}}`?"));
        let same = Property::parse(&reference).map(|property| format!("write `${{{property}}}`"));
        let message = format!("{} is no attribute of a device", quote(&value));
        fields.error(&span, "attribute", message, Some(same.or(near).unwrap_or_else(|| ADVICE.to_owned())));
    }
    property
}
