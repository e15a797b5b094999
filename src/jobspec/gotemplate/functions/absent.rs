//! Functions that consul-template has and allostat does not, with what to use instead.

const CONSUL: &str = "has no Consul here";
const VAULT: &str = "has no Vault here";
const NOMAD: &str = "has no Nomad servers here";

const OF_A_SERVICE: &str = "write the address in the job, or use the service catalogue at GET /v1/services";
const OF_A_SECRET: &str = "use env, key from the key tree, or file with a file below the task's directory";
const OF_A_CERTIFICATE: &str = "use file with a certificate below the task's directory";
const OF_A_NODE: &str = "use env with node and meta values in the task's env stanza";

/// Of a cluster: name, why, advice.
const CLUSTER: &[(&str, &str, &str)] = &[
    ("service", CONSUL, OF_A_SERVICE),
    ("services", CONSUL, OF_A_SERVICE),
    ("connect", CONSUL, OF_A_SERVICE),
    ("caRoots", CONSUL, OF_A_CERTIFICATE),
    ("caLeaf", CONSUL, OF_A_CERTIFICATE),
    ("datacenters", CONSUL, "use env \"NOMAD_DC\""),
    ("node", CONSUL, OF_A_NODE),
    ("nodes", CONSUL, OF_A_NODE),
    ("partitions", CONSUL, "write the value itself"),
    ("peerings", CONSUL, "write the value itself"),
    ("exportedServices", CONSUL, OF_A_SERVICE),
    ("secret", VAULT, OF_A_SECRET),
    ("secrets", VAULT, OF_A_SECRET),
    ("pkiCert", VAULT, OF_A_CERTIFICATE),
    ("pkiSign", VAULT, OF_A_CERTIFICATE),
    ("nomadService", NOMAD, OF_A_SERVICE),
    ("nomadServices", NOMAD, OF_A_SERVICE),
    ("nomadVar", NOMAD, "use key, keyOrDefault or tree with the key tree"),
    ("nomadVarList", NOMAD, "use ls or tree with the key tree"),
    ("nomadVarListSafe", NOMAD, "use safeLs or safeTree with the key tree"),
    ("nomadVarExists", NOMAD, "use keyExists with the key tree"),
];

/// Not for the task, or not built: name, advice.
const OTHER: &[(&str, &str)] = &[
    ("byTag", "it groups services, which are not here; write the list itself"),
    ("byPort", "it groups services, which are not here; write the list itself"),
    ("byMeta", "it groups services, which are not here; write the list itself"),
    ("call", "no value of a template is a function; use define and template"),
    ("plugin", "Nomad refuses it by default; run a prestart task that writes a file, and use file"),
    ("writeToFile", "Nomad refuses it by default; write a second template stanza"),
    ("spew_dump", "use printf \"%v\""),
    ("spew_sdump", "use printf \"%v\""),
    ("spew_printf", "use printf"),
    ("spew_sprintf", "use printf"),
    ("sprig_expandenv", "use env"),
    ("sprig_getHostByName", "write the address itself"),
    ("sprig_uuidv4", "it yields another value each time; use env \"NOMAD_ALLOC_ID\""),
    ("sprig_randAlphaNum", "it yields another value each time; write the value itself"),
    ("sprig_set", "use scratch.MapSet, or sprig_dict with all entries"),
    ("sprig_unset", "use sprig_omit"),
];

/// A function that is refused.
pub(super) struct RefusedFunction {
    pub(super) message: String,
    pub(super) advice: &'static str,
    pub(super) never_renders: bool,
}

/// `None`: it is in neither table.
pub(super) fn refused(name: &str) -> Option<RefusedFunction> {
    if let Some((_, why, advice)) = CLUSTER.iter().find(|(of_cluster, ..)| *of_cluster == name) {
        let message = format!("{name} is not supported: allostat {why}");
        return Some(RefusedFunction { message, advice, never_renders: true });
    }
    let (_, advice) = OTHER.iter().find(|(other, _)| *other == name)?;
    Some(RefusedFunction { message: format!("{name} is not supported"), advice, never_renders: false })
}
