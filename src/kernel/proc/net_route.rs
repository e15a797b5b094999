//! `/proc/net/route`: the IPv4 routes. Source: proc_pid_net(5).

/// The interface of the first default route. `None`: there is none.
pub fn default_interface(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    text.lines().skip(1).find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let (name, destination, flags) = (fields.next()?, fields.next()?, fields.nth(1)?);
        let mask = fields.nth(3)?;
        // RTF_UP, and no RTF_REJECT.
        let flags = u32::from_str_radix(flags, 16).ok()?;
        (destination == "00000000" && mask == "00000000" && flags & 0x201 == 1).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_route_is_the_one_to_everywhere_that_is_up() {
        let head = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n";
        let line = |name: &str, to: &str, flags: &str, mask: &str| {
            format!("{name}\t{to}\t0100000A\t{flags}\t0\t0\t100\t{mask}\t0\t0\t0\n")
        };
        let lan = line("eth0", "0000000A", "0001", "00FFFFFF");
        let reject = line("*", "00000000", "0201", "00000000");
        let down = line("eth1", "00000000", "0002", "00000000");
        let half = line("tun0", "00000000", "0003", "00000080");
        let way = line("eth2", "00000000", "0003", "00000000");
        let all = format!("{head}{lan}{reject}{down}{half}{way}");
        assert_eq!(default_interface(all.as_bytes()).as_deref(), Some("eth2"));
        assert_eq!(default_interface(format!("{head}{lan}{reject}{down}{half}").as_bytes()), None);
        assert_eq!(default_interface(b"x\neth0 00000000"), None);
    }
}
