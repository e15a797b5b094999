use super::*;
use crate::model::address::{AddressBlock, BROADCAST, LOOPBACK, MULTICAST, RUNNING, UP};

/// A host with two networks, a bridge of containers, a tunnel that is down and an address of the internet.
pub(super) fn host() -> Vec<InterfaceAddress> {
    let lan = UP | BROADCAST | MULTICAST | RUNNING;
    let one = |interface: &str, block: &str, flags: u32| InterfaceAddress {
        interface: interface.to_owned(),
        block: AddressBlock::parse(block).unwrap(),
        flags,
        is_default: interface == "eth0",
    };
    vec![
        one("lo", "127.0.0.1/8", UP | LOOPBACK | RUNNING),
        one("lo", "::1/128", UP | LOOPBACK | RUNNING),
        one("docker0", "172.17.0.1/16", lan),
        one("eth1", "10.1.2.3/24", lan),
        one("eth0", "192.168.7.9/24", lan),
        one("eth0", "fe80::9/64", lan),
        one("eth0", "fd00::9/64", lan),
        one("eth2", "8.8.4.4/29", lan),
        one("tun0", "10.200.0.1/30", 0x10),
    ]
}

#[test]
fn pipelines_of_job_files_give_what_go_sockaddr_gives() {
    for (pipeline, expected) in [
        ("GetPrivateIP", "192.168.7.9"),
        ("GetPublicIP", "8.8.4.4"),
        ("GetPrivateIPs", "172.17.0.1 10.1.2.3 192.168.7.9 10.200.0.1 fd00::9"),
        ("GetPublicIPs", "8.8.4.4"),
        (r#"GetInterfaceIP "eth1""#, "10.1.2.3"),
        (r#"GetInterfaceIP "eth0""#, "192.168.7.9"),
        (r#"GetInterfaceIP "lo""#, ""),
        (r#"GetInterfaceIP "none""#, ""),
        (r#"GetInterfaceIPs "eth0""#, "192.168.7.9 fe80::9 fd00::9"),
        (r#"GetPrivateInterfaces | attr "address""#, "192.168.7.9"),
        (r#"GetPrivateInterfaces | include "network" "10.0.0.0/8" | attr "name""#, "eth1"),
        (r#"GetPrivateInterfaces | include "network" "10.1.2.0/25" | attr "name""#, ""),
        (r#"GetPrivateInterfaces | exclude "name" "docker.*" | join "address" ",""#, "192.168.7.9,fd00::9,10.1.2.3"),
        (r#"GetPublicInterfaces | attr "network""#, "8.8.4.0/29"),
        (r#"GetDefaultInterfaces | exclude "type" "IPv6" | attr "string""#, "192.168.7.9/24"),
        (r#"GetDefaultInterfaces | include "type" "ipv4|ipv6" | join "type" " ""#, "IPv4 IPv6 IPv6"),
        (
            r#"GetAllInterfaces | include "flag" "loopback" | include "type" "IPv4" | sort "address" | limit 1 | attr "address""#,
            "127.0.0.1",
        ),
        (r#"GetAllInterfaces | include "flags" "up|forwardable" | exclude "flag" "up" | attr "name""#, "tun0"),
        (
            r#"GetAllInterfaces | include "rfc" "1918|4193" | sort "-size,name" | join "mask_bits" " ""#,
            "64 30 24 24 16",
        ),
        (r#"GetAllInterfaces | include "size" "29" | attr "netmask""#, "255.255.255.248"),
        (r#"GetAllInterfaces | sort "name" | unique "name" | offset 1 | join "name" " ""#, "eth0 eth1 eth2 lo tun0"),
        (r#"GetAllInterfaces | offset -1 | attr "flags""#, "pointtopoint"),
        (r#"GetAllInterfaces | include "address" `^10\.1\.` | attr "ADDRESS""#, "10.1.2.3"),
        (r#"GetAllInterfaces|include "flag" "link-local unicast"|attr "address""#, "fe80::9"),
    ] {
        let template = format!("{{{{ sockaddr {pipeline:?} }}}}");
        assert_eq!(render(&template).as_deref(), Ok(expected), "{pipeline}");
    }
    assert_eq!(render(r#"{{ sockaddr "GetInterfaceIP" "\"eth1\"" }}"#).as_deref(), Ok("10.1.2.3"));
    assert_eq!(
        render(r#"{{ with $ip := sockaddr "GetPrivateIP" }}{{ $ip }}:80{{ end }}"#).as_deref(),
        Ok("192.168.7.9:80")
    );
    assert_eq!(
        render(r#"{{ range sockaddr "GetInterfaceIPs \"eth1\"" | split " " }}<{{ . }}>{{ end }}"#).as_deref(),
        Ok("<10.1.2.3>")
    );
}

#[test]
fn other_pipelines_are_refused_before_the_start_with_place_and_advice() {
    for (pipeline, message, advice) in [
        ("GetPrivatIP", "a pipeline cannot begin with GetPrivatIP", "did you mean GetPrivateIP?"),
        ("GetHostIP | x", "a pipeline cannot begin with GetHostIP", "GetP"),
        ("GetPrivateInterfaces", "gives a list of interfaces", "attr \"address\""),
        (r#"GetPrivateInterfaces | sort "size""#, "gives a list of interfaces", "attr \"address\""),
        (r#"GetPrivateInterfaces | atr "address""#, "there is no stage atr", "did you mean attr?"),
        (r#"GetPrivateInterfaces | attr "adress""#, "allostat has no attribute adress", "did you mean address?"),
        (r#"GetPrivateInterfaces | attr "binary""#, "allostat has no attribute binary", "write one of address"),
        (r#"GetPrivateInterfaces | attr"#, "attr takes one text", "attr \"address\""),
        (r#"GetPrivateInterfaces | attr "name" | join "x" "y""#, "which no stage takes", "the last stage"),
        (r#"GetPrivateInterfaces | include "mac" "x" | attr "name""#, "do not know mac", "write one of address"),
        (r#"GetPrivateInterfaces | include "network" "10/8" | attr "name""#, "is no network", "10.0.0.0/8"),
        (r#"GetPrivateInterfaces | include "rfc" "1" | attr "name""#, "does not have RFC 1", "1918"),
        (r#"GetPrivateInterfaces | include "flag" "down" | attr "name""#, "allostat has no flag down", "up"),
        (r#"GetPrivateInterfaces | include "name" "(" | attr "name""#, "is no regular expression", "^eth0$"),
        (r#"GetPrivateInterfaces | limit "1" | attr "name""#, "limit takes one number", "limit 1"),
        (r#"GetPrivateInterfaces | limit -1 | attr "name""#, "limit takes one number that is not negative", "limit 1"),
        (r#"GetPrivateInterfaces | math "network" "+1" | attr "name""#, "has no math", "the address itself"),
        (r#"GetInterfaceIP eth0"#, "GetInterfaceIP takes one text", "GetInterfaceIP \"eth0\""),
        (r#"GetInterfaceIP "eth0" | attr "name""#, "gives a text, which attr does not take", "GetAllInterfaces"),
        (r#""eth0" | GetInterfaceIP"#, "begins with a function", "GetPrivateInterfaces"),
        ("GetPrivateIP \"x\"", "GetPrivateIP takes no argument", "write GetPrivateIP alone"),
        ("", "is empty", "GetPrivateInterfaces"),
        ("GetPrivateIP |", "is empty", "GetPrivateInterfaces"),
        ("GetInterfaceIP \"eth0", "is not closed", "GetPrivateInterfaces"),
    ] {
        let template = format!("a\n b{{{{ sockaddr {pipeline:?} }}}}");
        let fault = GoTemplate::parse(&template, &TemplateOptions::default()).unwrap_err().remove(0);
        assert_eq!((fault.line, fault.column, fault.never_renders), (2, 15, true), "{pipeline}");
        let error = fault.to_string();
        assert!(error.contains(message) && error.contains(advice), "{pipeline}: {error}");
    }
    let many = format!("GetAllInterfaces{} | attr \"name\"", " | limit 1".repeat(40));
    let long = "x".repeat(5_000);
    for (pipeline, message) in [(many, "more than 32 stages"), (long, "longer than 4096 bytes")] {
        let template = format!("{{{{ sockaddr {pipeline:?} }}}}");
        let faults = GoTemplate::parse(&template, &TemplateOptions::default()).unwrap_err();
        assert!(faults[0].message.contains(message), "{}", faults[0]);
    }
}

/// Texts that are written out are checked before the start, as the rendering joins them; a piped one is the last.
#[test]
fn piped_text_of_sockaddr_is_checked_as_it_is_rendered() {
    for (template, expected) in [
        (r#"{{ "eth1" | printf "%q" | sockaddr "GetInterfaceIP" }}"#, "10.1.2.3"),
        (r#"{{ env "NOMAD_TASK_NAME" | printf "%q" | sockaddr "GetInterfaceIP" }}"#, ""),
        (r#"{{ "\"eth1\"" | sockaddr "GetInterfaceIP" }}"#, "10.1.2.3"),
        (r#"{{ "GetPrivateIP" | sockaddr }}"#, "192.168.7.9"),
        (r#"{{ "GetPrivateIP" | sockaddr | printf "%s:80" }}"#, "192.168.7.9:80"),
    ] {
        assert_eq!(render(template).as_deref(), Ok(expected), "{template}");
    }
    for (template, column, message) in [
        (r#"{{ "x" | sockaddr "GetPrivateIP" }}"#, 19, "GetPrivateIP takes no argument"),
        (r#"{{ "eth1" | sockaddr "GetInterfaceIP" }}"#, 22, "GetInterfaceIP takes one text"),
        (r#"{{ "GetPrivatIP" | sockaddr }}"#, 20, "a pipeline cannot begin with GetPrivatIP"),
        ("{{ sockaddr }}", 4, "sockaddr takes at least 1 argument, not 0"),
        ("{{ sockaddr | print }}", 4, "sockaddr takes at least 1 argument, not 0"),
        ("{{ print sockaddr }}", 10, "sockaddr takes at least 1 argument, not 0"),
        ("{{ if true }}{{ else }}{{ sockaddr.x }}{{ end }}", 27, "sockaddr takes at least 1 argument, not 0"),
        (r#"{{ "x" | (sockaddr).x }}"#, 11, "sockaddr takes at least 1 argument, not 0"),
    ] {
        let faults = GoTemplate::parse(template, &TemplateOptions::default()).expect_err(template);
        let [fault] = &faults[..] else { panic!("{template}: {faults:?}") };
        assert!(fault.message.contains(message) && fault.never_renders, "{template}: {fault}");
        assert_eq!(fault.column, column, "{template}: {fault}");
    }
}

/// The syntax alone: what a pattern compiles to is bounded where time is, at the rendering.
#[test]
fn pattern_of_sockaddr_is_compiled_only_when_it_is_rendered() {
    for pipeline in [
        r#"GetInterfaceIP "((a{1000}){1000}){1000}""#,
        r#"GetAllInterfaces | include "name" "((a{1000}){1000}){1000}" | attr "name""#,
        r#"GetAllInterfaces | exclude "address" "((a{1000}){1000}){1000}" | attr "name""#,
    ] {
        let template = format!("{{{{ if false }}}}{{{{ sockaddr {pipeline:?} }}}}{{{{ end }}}}");
        assert_eq!(render(&template).as_deref(), Ok(""), "{pipeline}");
        let wrong = render(&format!("{{{{ sockaddr {pipeline:?} }}}}")).expect_err(pipeline);
        assert!(wrong.message.contains("exceeds size limit"), "{wrong}");
    }
}

/// A pipeline that the template puts together is checked when it is rendered.
#[test]
fn pipeline_of_a_variable_is_checked_when_it_is_rendered() {
    let made = r#"{{ $name := "eth1" }}{{ sockaddr (printf "GetInterfaceIP %q" $name) }}"#;
    assert_eq!(render(made).as_deref(), Ok("10.1.2.3"));
    let wrong = render(r#"{{ $made := "GetPrivatIP" }}{{ $made | sockaddr }}"#).unwrap_err();
    assert!(wrong.message.contains("a pipeline cannot begin with GetPrivatIP"), "{wrong}");
    let beyond = render(r#"{{ sockaddr "GetAllInterfaces | offset 10 | attr \"name\"" }}"#).unwrap_err();
    assert!(beyond.message.contains("the offset 10 is beyond the 9 addresses"), "{beyond}");
}
