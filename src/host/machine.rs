//! A node ID that survives restarts of the machine.
//!
//! Source: machine-id(5). The machine ID must not be exposed, so the node ID is a hash of it.

use super::roots::Roots;
use super::untrusted;

/// In UUID format. Absent when: the machine has no ID.
pub fn node_id(roots: &Roots) -> Option<String> {
    let bytes = untrusted::read(&roots.file("/etc/machine-id"), 256).ok()?;
    of_machine(&String::from_utf8_lossy(&bytes))
}

fn of_machine(id: &str) -> Option<String> {
    let id = id.trim();
    if id.len() != 32 || !id.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let hash = ring::digest::digest(&ring::digest::SHA256, format!("allostat node {id}").as_bytes());
    let hex: String = hash.as_ref().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    let parts = [hex.get(..8)?, hex.get(8..12)?, hex.get(12..16)?, hex.get(16..20)?, hex.get(20..)?];
    Some(parts.join("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_stable_and_does_not_show_the_machines() {
        let machine = "0123456789abcdef0123456789abcdef";
        let id = of_machine(&format!("{machine}\n")).unwrap();
        assert_eq!(of_machine(machine), Some(id.clone()));
        assert_eq!((id.len(), id.matches('-').count()), (36, 4));
        assert!(!id.replace('-', "").contains(&machine[..8]));
        for none in ["", "uninitialized", "0123"] {
            assert_eq!(of_machine(none), None);
        }
    }
}
