//! `allostat workload`: work of known kind, so that the demo needs no program but this one. Hidden.

use std::time::{Duration, Instant};

use clap::Subcommand;

use super::CliSession;
use super::exit::{CliError, CliExit, CliResult};

/// Work of known kind
#[derive(Debug, clap::Args)]
pub struct WorkloadCommand {
    #[command(subcommand)]
    kind: SyntheticLoad,
}

#[derive(Debug, Subcommand)]
enum SyntheticLoad {
    /// A service with little to do: holds memory, works a little every 100 ms
    Steady {
        #[arg(default_value_t = 24)]
        mib: usize,
    },
    /// Burns one core for a while, rests for a while
    Bursty {
        #[arg(default_value_t = 3000)]
        busy_ms: u64,
        #[arg(default_value_t = 3000)]
        idle_ms: u64,
    },
    /// Takes more memory until it is killed
    Leak {
        #[arg(default_value_t = 8)]
        mib_per_second: usize,
        /// Where nothing kills it, it gives up here
        #[arg(default_value_t = 96)]
        most_mib: usize,
    },
    /// Uses so much CPU time, and ends well
    Short {
        #[arg(default_value_t = 50)]
        ms: u64,
    },
}

impl WorkloadCommand {
    pub fn run(self, session: &mut CliSession<'_>) -> CliResult {
        match self.kind {
            SyntheticLoad::Steady { mib } => {
                let held = touched(mib << 20);
                writeln!(session.out, "holding {mib} MiB")?;
                session.out.flush()?;
                loop {
                    burn(Duration::from_millis(4));
                    std::hint::black_box(&held);
                    std::thread::sleep(Duration::from_millis(96));
                }
            }
            SyntheticLoad::Bursty { busy_ms, idle_ms } => {
                // Without its supervisor its output has no reader, and it has no work.
                while !session.out.is_closed() {
                    writeln!(session.out, "busy for {busy_ms} ms")?;
                    session.out.flush()?;
                    burn(Duration::from_millis(busy_ms));
                    std::thread::sleep(Duration::from_millis(idle_ms));
                }
                Ok(CliExit::Done)
            }
            SyntheticLoad::Leak { mib_per_second, most_mib } => {
                let mut leaked = Vec::new();
                while !session.out.is_closed() {
                    if leaked.len() * mib_per_second >= most_mib * 8 {
                        return Err(CliError::failed(format!("{most_mib} MiB leaked, and nothing stopped it")));
                    }
                    // An eighth of a second's worth.
                    leaked.push(touched(mib_per_second << 17));
                    writeln!(session.out, "{} KiB leaked", (leaked.len() * mib_per_second) << 7)?;
                    session.out.flush()?;
                    std::thread::sleep(Duration::from_millis(125));
                }
                Ok(CliExit::Done)
            }
            SyntheticLoad::Short { ms } => {
                use_cpu(Duration::from_millis(ms));
                Ok(CliExit::Done)
            }
        }
    }
}

/// So many bytes, every page written, and not with zeros only: they are really there.
fn touched(bytes: usize) -> Vec<u8> {
    let mut memory = vec![0u8; bytes];
    for (i, page) in memory.chunks_mut(4096).enumerate() {
        page[0] = u8::try_from(i % 251).unwrap_or(1) | 1;
    }
    std::hint::black_box(memory)
}

/// For so long by the clock on the wall, however much of it a quota leaves us.
fn burn(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        work();
    }
}

/// So much CPU time, however long that takes.
fn use_cpu(time: Duration) {
    let used = || {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Duration::try_from(now).unwrap_or_default()
    };
    while used() < time {
        work();
    }
}

fn work() {
    let mut x = 1u64;
    for _ in 0..10_000 {
        x = std::hint::black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}
