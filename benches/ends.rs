//! What it costs a process to end while the kernel reports ends, beside the same without that.
//!
//! `cargo bench --bench ends`, as root. Lines: `bench <tab> name <tab> value <tab> unit <tab> ratio <tab> to what`.

use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use allostat::collectors::{CgroupEndTracer, KernelPass};
use allostat::host::hierarchy::Layout;
use allostat::host::roots::Roots;
use allostat::model::id::CgroupPath;

const ROUNDS: usize = 21;
const PROCESSES: u32 = 200;

fn main() -> ExitCode {
    match compare() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn compare() -> Result<(), String> {
    let roots = Roots::default();
    let layout = Layout::detect(&roots).map_err(|e| e.to_string())?;
    let pass = KernelPass::open(&roots, &layout, &CgroupPath::from("/")).map_err(|e| e.to_string())?;
    let (mut without, mut with) = (Vec::new(), Vec::new());
    // In turns, so that whatever else runs here is beside both.
    for _ in 0..ROUNDS {
        without.push(processes()?);
        let ends = CgroupEndTracer::open(&roots, &layout, &pass).map_err(|e| e.to_string())?;
        with.push(processes()?);
        drop(ends);
    }
    let [without, with] = [without, with].map(median);
    let micros = |each: Duration| each.as_secs_f64() * 1e6;
    println!("bench\tends/process\t{:.1}\tus for a process to begin and end\t-", micros(without));
    let ratio = with.as_secs_f64() / without.as_secs_f64();
    println!(
        "bench\tends/process-reported\t{:.1}\tus while its end is reported\t{ratio:.2}\tends/process",
        micros(with)
    );
    Ok(())
}

/// One of them.
fn processes() -> Result<Duration, String> {
    let started_at = Instant::now();
    for _ in 0..PROCESSES {
        let ended = Command::new("/bin/true").stdin(Stdio::null()).status().map_err(|e| e.to_string())?;
        if !ended.success() {
            return Err("true is false".to_owned());
        }
    }
    Ok(started_at.elapsed() / PROCESSES)
}

fn median(mut all: Vec<Duration>) -> Duration {
    all.sort_unstable();
    all[all.len() / 2]
}
