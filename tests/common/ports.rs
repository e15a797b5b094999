//! Ports of loopback that belong to this test process alone.
//!
//! A port that the kernel chose may become the local port of any outgoing connection between two uses of it. An agent
//! that is started again would then find it taken. So ports are chosen below the kernel's range, in blocks. A process
//! owns a block while it holds an abstract Unix socket of the block's name. Such a name is unique in the network
//! namespace, as ports are, and goes with the process.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener};
use std::sync::{Mutex, PoisonError};

/// Above the usual ports of services, and of what is tested here.
const FIRST: u16 = 20_000;
const BLOCK: u16 = 64;

#[derive(Default)]
struct Ports {
    /// Ports of the current block that were not given yet.
    left: Vec<u16>,
    held: Vec<UnixListener>,
}

static PORTS: Mutex<Ports> = Mutex::new(Ports { left: Vec::new(), held: Vec::new() });

/// A port on which nothing listens. No other test process and no outgoing connection is given it.
#[track_caller]
pub fn free_address() -> SocketAddr {
    let mut ports = PORTS.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        while let Some(port) = ports.left.pop() {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            // Another program may listen there.
            if TcpListener::bind(address).is_ok() {
                return address;
            }
        }
        let Some((block, held)) = free_block() else {
            // The kernel may choose from all ports here: one that it gives is as good as any, and may be taken again
            // meanwhile.
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port must be free");
            return listener.local_addr().expect("it is bound");
        };
        ports.held.push(held);
        ports.left = (block..block + BLOCK).rev().collect();
    }
}

fn free_block() -> Option<(u16, UnixListener)> {
    let first_of_kernel = first_of_kernel();
    let blocks = (FIRST..first_of_kernel.saturating_sub(BLOCK - 1)).step_by(BLOCK.into());
    let hold = |block: u16| {
        let name = UnixAddress::from_abstract_name(format!("allostat-test-ports-{block}")).expect("the name is short");
        Some((block, UnixListener::bind_addr(&name).ok()?))
    };
    // Each process begins with another block: one that has ended may have left connections.
    let blocks: Vec<u16> = blocks.collect();
    let begin = std::process::id() as usize % blocks.len().max(1);
    blocks[begin..].iter().chain(&blocks[..begin]).find_map(|block| hold(*block))
}

/// The first port that the kernel may choose by itself. Source: ip(7), `ip_local_port_range`.
fn first_of_kernel() -> u16 {
    let text = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    text.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(32_768)
}
