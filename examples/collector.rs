//! A complete host collector: the worked example of `CONTRIBUTING.md`. `cargo run --example collector` reads this host
//! once. In the agent it would be `src/collectors/host/entropy.rs`, with `crate` for `allostat` and without `main`.

use std::io::Write as _;

use allostat::collectors::{CollectError, Collector};
use allostat::host::roots::Roots;
use allostat::kernel::text;
use allostat::model::metric::{MetricDesc, Samples};
use allostat::model::profile::Profile;
use allostat::model::units::Unit;

/// Source: `random_table` in drivers/char/random.c: one number, 256 at most since Linux 5.18.
const FILE: &str = "sys/kernel/random/entropy_avail";

static AVAILABLE: MetricDesc = MetricDesc::gauge(
    "allostat_host_entropy_available_bits",
    Unit::None,
    "Entropy that the random number generator of the kernel has available.",
    &[],
)
.from_source("/proc/sys/kernel/random/entropy_avail")
.absent_when("the kernel does not report it")
.from_profile(Profile::Full)
.otlp("allostat.host.entropy.available", "bit");

/// Entropy of the kernel.
#[derive(Debug)]
pub(crate) struct EntropyCollector;

impl Collector for EntropyCollector {
    fn name(&self) -> &'static str {
        "entropy"
    }
    fn metrics(&self) -> &'static [&'static MetricDesc] {
        static METRICS: &[&MetricDesc] = &[&AVAILABLE];
        METRICS
    }
    fn collect(&mut self, roots: &Roots, out: &mut Samples) -> Result<(), CollectError> {
        // A missing file is `ReadError::Absent`: no sample, and no error. Text that is no number is an error.
        let bits = text::single("entropy_avail", &roots.read_proc(FILE)?)?;
        out.push_int(&AVAILABLE, &[], bits);
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut samples = Samples::default();
    EntropyCollector.collect(&Roots::default(), &mut samples)?;
    for sample in &samples.0 {
        writeln!(std::io::stdout(), "{} {:?}", sample.desc.name, sample.value)?;
    }
    Ok(())
}
