//! `/proc/net/dev`: traffic of each interface of the network namespace. Units: bytes, packets, events.

use crate::kernel::error::{ParseError, Parsed};
use crate::kernel::text::{digits, lines, trim, words};

/// A network interface and its counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    pub name: String,
    pub received: Traffic,
    pub sent: Traffic,
}

/// Counters of one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    pub bytes: u64,
    pub packets: u64,
    pub errors: u64,
    /// Includes missed packets.
    pub dropped: u64,
}

/// Source: `dev_seq_printf_stats` in net/core/net-procfs.c. Two heading lines; then name, colon (on older kernels
/// directly followed by the first number), eight numbers received and eight sent.
pub fn parse(bytes: &[u8]) -> Parsed<Vec<Interface>> {
    let mut interfaces = Vec::new();
    let mut error = None;
    for (number, line) in lines(bytes).filter(|(number, _)| *number > 2) {
        match interface(line) {
            Some(interface) => interfaces.push(interface),
            // A line without a colon is no interface.
            None if !line.contains(&b':') => {}
            None => {
                error.get_or_insert_with(|| ParseError::new("net/dev", number, "a name and 16 numbers", trim(line)));
            }
        }
    }
    (interfaces, error)
}

fn interface(line: &[u8]) -> Option<Interface> {
    let colon = line.iter().rposition(|b| *b == b':')?;
    let (name, numbers) = line.split_at_checked(colon)?;
    let name = std::str::from_utf8(trim(name)).ok().filter(|name| !name.is_empty())?.to_owned();
    let mut found = [0; 16];
    let mut words = words(numbers.get(1..)?);
    for number in &mut found {
        *number = words.next().and_then(digits)?;
    }
    let [bytes, packets, errors, dropped, _, _, _, _, sent @ ..] = found;
    let received = Traffic { bytes, packets, errors, dropped };
    let [bytes, packets, errors, dropped, ..] = sent;
    Some(Interface { name, received, sent: Traffic { bytes, packets, errors, dropped } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEADINGS: &str = "Inter-|   Receive    |  Transmit\n face |bytes packets errs drop\n";

    #[test]
    fn the_first_number_may_stand_right_behind_the_colon() {
        let text = format!(
            "{HEADINGS}    lo: 7 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0\n  eth0:123 4 5 6 0 0 0 9 10 11 12 13 0 0 0 0\n"
        );
        let (interfaces, error) = parse(text.as_bytes());
        assert_eq!(error, None);
        let [lo, eth0] = interfaces.as_slice() else { panic!("{interfaces:?}") };
        assert_eq!((lo.name.as_str(), lo.received.bytes), ("lo", 7));
        assert_eq!(eth0.received, Traffic { bytes: 123, packets: 4, errors: 5, dropped: 6 });
        assert_eq!(eth0.sent, Traffic { bytes: 10, packets: 11, errors: 12, dropped: 13 });
    }

    #[test]
    fn a_bad_line_costs_its_own_interface_only() {
        let text = format!("{HEADINGS} eth0: 1 2 x\n lo: 7 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0\n");
        let (interfaces, error) = parse(text.as_bytes());
        assert_eq!(interfaces.iter().map(|i| i.name.as_str()).collect::<Vec<_>>(), ["lo"]);
        assert_eq!(
            error.unwrap().to_string(),
            r#"net/dev, line 3: expected a name and 16 numbers, found "eth0: 1 2 x""#
        );
    }

    #[test]
    fn an_empty_file_has_no_interface() {
        assert_eq!(parse(b""), (Vec::new(), None));
        assert_eq!(parse(HEADINGS.as_bytes()), (Vec::new(), None));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }
    }
}
