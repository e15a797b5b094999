//! The power test: a small machine writes to the state database and to the queue of OTLP, is switched off in the middle
//! of it, and is asked after the next boot for everything that it had acknowledged.
//!
//! ```text
//! host                                                guest
//! first root: modules, busybox, writer           →    /dev/vda (raw, ext4) on /data; examples/power.rs writes there
//! reads `ack`, counts, kills QEMU with SIGKILL   ←    second serial line
//! boots again, compares `have` with the acks     ←    what it found
//! ```
//! What dies with the machine is its page cache: only what the guest has synced is on the disk, which writes through. A
//! kill counts after 1,000 acknowledgements of its boot, with the writer still writing. The negative control is the
//! same writer with syncs that do nothing: it must lose something, or the test could not see a loss.
//!
//! Promise (Durability and recovery, slice systemd-power): Nothing acknowledged is lost at a loss of power; without
//! syncs the same test shows a loss

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::guest::{self, FirstRoot};
use crate::parts::{Missing, Parts};
use crate::{Result, run};

/// Kernels, and how often each is switched off.
const MACHINES: &[(&str, u32)] = &[("6.1", 5), ("6.12", 5)];
/// The control is switched off until it has lost something, and at most this often.
const CONTROL_KILLS: u32 = 3;
const ACKNOWLEDGED: u64 = 1_000;
const DISK_MIB: u32 = 192;
const MEMORY_MIB: u32 = 320;
/// One boot with its thousand writes, some 10 s of a processor that everything else has before it.
const LIMIT: Duration = Duration::from_secs(600);

/// With the disk on `/data`.
const WRITE: &str = "\
/bin/busybox stty -F /dev/ttyS1 raw
/power /data/state MODE > /dev/ttyS1 2> /dev/console
echo 'the writer ended'
/bin/busybox sleep 1000
";

/// What one boot said.
#[derive(Debug, Default, PartialEq)]
struct BootReport {
    /// By writer: how many records it found.
    have: Vec<u64>,
    /// By writer: how many records it acknowledged, those of earlier boots included.
    acked: Vec<u64>,
    acks: u64,
    going: bool,
    wrong: Vec<String>,
}

/// Only whole lines count: the last one may be half.
fn read(text: &str) -> BootReport {
    let mut report = BootReport::default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    for line in whole.lines() {
        let words: Vec<&str> = line.trim().split(' ').collect();
        match words.as_slice() {
            ["have", writer, n] => note(&mut report.have, writer, n.parse().ok()),
            ["ack", writer, n] => {
                report.acks += 1;
                note(&mut report.acked, writer, n.parse::<u64>().ok().map(|n| n + 1));
            }
            ["go"] => report.going = true,
            _ => report.wrong.push(line.to_owned()),
        }
    }
    report
}

fn note(list: &mut Vec<u64>, writer: &str, n: Option<u64>) {
    if let (Ok(writer), Some(n)) = (writer.parse::<usize>(), n)
        && writer < 64
    {
        list.resize(list.len().max(writer + 1), 0);
        list[writer] = list[writer].max(n);
    }
}

/// Acknowledged before the power went, and not there afterwards.
fn lost(acked: &[u64], have: &[u64]) -> u64 {
    let found = |writer: usize| have.get(writer).copied().unwrap_or(0);
    acked.iter().enumerate().map(|(writer, acked)| acked.saturating_sub(found(writer))).sum()
}

pub fn missing(parts: &Parts) -> Option<&Missing> {
    let kernels = MACHINES.iter().map(|(kernel, _)| format!("kernel-{kernel}"));
    let programs = ["qemu", "busybox", "e2fsprogs"].map(str::to_owned);
    programs.into_iter().chain(kernels).find_map(|part| parts.missing(&part))
}

/// One machine that is switched off again and again.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    pub name: String,
    kernel: &'static str,
    kills: u32,
    control: bool,
}

pub fn trials() -> Vec<Trial> {
    let trial = |(kernel, kills): &(&'static str, u32)| Trial {
        name: format!("power::kernel {kernel}: {kills} power failures lose nothing acknowledged"),
        kernel,
        kills: *kills,
        control: false,
    };
    let mut trials: Vec<Trial> = MACHINES.iter().map(trial).collect();
    let name = "power::control: without syncs something is lost".to_owned();
    trials.push(Trial { name, kernel: "6.12", kills: CONTROL_KILLS, control: true });
    trials
}

impl Trial {
    /// What it found, in words. Errors: something acknowledged was lost, or of the control nothing was.
    pub fn run(&self, parts: &Parts, writer: &Path, logs: &Path) -> Result<String> {
        let work = if self.control { "power-control".to_owned() } else { format!("power-{}", self.kernel) };
        let machine = Machine::make(parts, self.kernel, writer, logs.join(work), self.control)?;
        if self.control { machine.control(self.kills) } else { machine.test(self.kills) }
    }
}

struct Machine<'a> {
    parts: &'a Parts,
    kernel: PathBuf,
    work: PathBuf,
}

impl Machine<'_> {
    fn make<'a>(parts: &'a Parts, kernel: &str, writer: &Path, work: PathBuf, control: bool) -> Result<Machine<'a>> {
        if work.exists() {
            fs::remove_dir_all(&work)?;
        }
        fs::create_dir_all(&work)?;
        let kernel = parts.kernel(kernel);
        let write = WRITE.replace("MODE", if control { "unsynced" } else { "" });
        let mut root = FirstRoot::new(parts, &kernel, "/data", &write)?;
        root.program(writer, "power", &work)?;
        fs::write(work.join("first-root.cpio"), root.finish())?;
        let mke2fs = parts.program("mke2fs").ok_or("mke2fs must be there")?;
        run::output(
            Command::new(mke2fs)
                .args(["-q", "-F", "-t", "ext4"])
                .arg(work.join("disk.img"))
                .arg(format!("{DISK_MIB}M")),
        )?;
        Ok(Machine { parts, kernel, work })
    }

    /// Boots, lets it write, switches it off; `None`: only boots, and asks what is there.
    fn boot(&self, number: u32, acks: Option<u64>) -> Result<BootReport> {
        let reported = self.work.join(format!("said-{number}.log"));
        let mut qemu = guest::emulator(self.parts)?;
        qemu.args(["-m", &MEMORY_MIB.to_string()])
            .args(["-serial", &format!("file:{}", self.work.join(format!("console-{number}.log")).display())])
            .args(["-serial", &format!("file:{}", reported.display())])
            .args([
                "-drive",
                &format!("file={},if=virtio,format=raw,cache=writethrough", self.work.join("disk.img").display()),
            ])
            .arg("-kernel")
            .arg(guest::image_of(&self.kernel)?)
            .arg("-initrd")
            .arg(self.work.join("first-root.cpio"))
            .args(["-append", guest::COMMAND_LINE]);
        let log = fs::File::create(self.work.join("qemu.log"))?;
        qemu.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut machine = RunningMachine(qemu.spawn().map_err(|e| format!("cannot start QEMU: {e}"))?);
        let began = Instant::now();
        let listen = || read(&String::from_utf8_lossy(&fs::read(&reported).unwrap_or_default()));
        loop {
            let now = listen();
            if !now.wrong.is_empty() {
                return Err(format!("boot {number}: {}", now.wrong.join("; ")).into());
            }
            if acks.map_or(now.going, |acks| now.acks >= acks) {
                break;
            }
            if machine.0.try_wait()?.is_some() || began.elapsed() > LIMIT {
                let console = fs::read_to_string(self.work.join(format!("console-{number}.log"))).unwrap_or_default();
                let tail: Vec<&str> = console.lines().rev().take(15).collect();
                let tail: Vec<&str> = tail.into_iter().rev().collect();
                return Err(format!("boot {number} came to {} acknowledgements:\n{}", now.acks, tail.join("\n")).into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        if acks.is_some() {
            // The writer must be writing still: the kill waits for its next word and comes right behind it.
            let before = listen().acks;
            while listen().acks == before {
                if machine.0.try_wait()?.is_some() || began.elapsed() > LIMIT {
                    return Err(format!("boot {number}: the writer was no longer writing").into());
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        machine.switch_off()?;
        Ok(listen())
    }

    fn test(&self, kills: u32) -> Result<String> {
        let mut acked = Vec::new();
        let mut total = 0;
        for number in 0..=kills {
            let report = self.boot(number, (number < kills).then(some_acks))?;
            let lost = lost(&acked, &report.have);
            if lost > 0 {
                return Err(format!(
                    "boot {number}: {lost} acknowledged records are lost: {acked:?} became {:?}",
                    report.have
                )
                .into());
            }
            total += report.acks;
            acked = report.acked.iter().zip(&report.have).map(|(acked, have)| *acked.max(have)).collect();
        }
        fs::remove_file(self.work.join("disk.img"))?;
        Ok(format!("{kills} power failures, {total} acknowledgements, none lost"))
    }

    fn control(&self, kills: u32) -> Result<String> {
        let mut acked = Vec::new();
        for number in 0..=kills {
            // Whatever it says is wrong is a loss too.
            let report = match self.boot(number, (number < kills).then_some(ACKNOWLEDGED)) {
                Ok(report) => report,
                Err(error) if number > 0 => return Ok(format!("the control lost something, as it must: {error}")),
                Err(error) => return Err(error),
            };
            let lost = lost(&acked, &report.have);
            if lost > 0 {
                return Ok(format!("the control lost {lost} acknowledged records, as it must"));
            }
            acked = report.acked;
        }
        Err(format!("{kills} power failures without any sync lost nothing: this test cannot see a loss").into())
    }
}

/// A different moment each time.
fn some_acks() -> u64 {
    let nanos = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.subsec_nanos());
    ACKNOWLEDGED + u64::from(nanos / 1000 % 400)
}

/// Switched off with the value, whatever happens.
struct RunningMachine(Child);

impl RunningMachine {
    /// SIGKILL, like a cut cable.
    fn switch_off(&mut self) -> Result<()> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }
}

impl Drop for RunningMachine {
    fn drop(&mut self) {
        let _ = self.switch_off();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_a_boot_is_counted_line_by_line() {
        let report = read("have 0 7\nhave 1 3\ngo\nack 1 3\nack 0 7\nack 1 4\nack 1 5");
        assert_eq!((report.have, report.acked, report.acks, report.going), (vec![7, 3], vec![8, 5], 3, true));
        assert_eq!(read("wrong task/0/1\n").wrong, ["wrong task/0/1"]);
        assert_eq!(read("ack 0 1"), BootReport::default());
    }

    #[test]
    fn one_missing_record_is_a_loss_and_one_too_many_is_none() {
        assert_eq!(lost(&[8, 5], &[8, 5]), 0);
        assert_eq!(lost(&[8, 5], &[9, 5]), 0);
        assert_eq!(lost(&[8, 5], &[9, 4]), 1);
        assert_eq!(lost(&[8, 5], &[8]), 5);
    }
}
