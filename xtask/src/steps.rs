//! The steps of a long run: one after the other, or beside each other where they share nothing but the processor. A
//! table at the end has the seconds of each, and of those that ran by themselves the CPU seconds of all processes that
//! they waited for.

use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::Result;

/// A step by its name, and what it does. Its lines name their place: those of steps beside it come between them.
pub type Step<'a, T> = (&'a str, Box<dyn FnOnce() -> Result<T> + Send + 'a>);

#[derive(Debug)]
struct StepTime {
    name: String,
    wall: Duration,
    /// `None`: others ran beside it.
    cpu: Option<f64>,
}

#[derive(Debug)]
pub struct Steps {
    started: Instant,
    took: Mutex<Vec<StepTime>>,
}

impl Steps {
    pub fn begin() -> Steps {
        Steps { started: Instant::now(), took: Mutex::default() }
    }

    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    pub fn step<T>(&self, name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let (started_at, cpu) = (Instant::now(), cpu_seconds());
        let done = work();
        self.note(name.to_owned(), started_at.elapsed(), Some(cpu_seconds() - cpu))?;
        done
    }

    fn note(&self, name: String, wall: Duration, cpu: Option<f64>) -> Result<()> {
        let mut took = self.took.lock().map_err(|_| "a step panicked while it was noted")?;
        took.push(StepTime { name, wall, cpu });
        Ok(())
    }

    /// All at once, each to its end; the results in the order of the steps, or the first error. `name` is that of the
    /// group.
    pub fn in_parallel<T: Send>(&self, name: &str, steps: Vec<Step<'_, T>>) -> Result<Vec<T>> {
        let names: Vec<&str> = steps.iter().map(|(name, _)| *name).collect();
        if names.is_empty() {
            return Ok(Vec::new());
        }
        println!("{name}: {}", names.join(", "));
        self.step(name, || {
            std::thread::scope(|scope| {
                // An error of ours cannot leave its thread, its text can.
                let run = |name: &str, work: Box<dyn FnOnce() -> Result<T> + Send + '_>| {
                    let started_at = Instant::now();
                    let done = work().map_err(|e| e.to_string());
                    self.note(format!("  {name}"), started_at.elapsed(), None).map_err(|e| e.to_string())?;
                    done
                };
                let steps = steps.into_iter();
                let running: Vec<_> = steps.map(|(name, work)| scope.spawn(move || run(name, work))).collect();
                let ended: Vec<_> = running.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
                let result = |(name, ended): (&str, std::thread::Result<std::result::Result<T, String>>)| match ended {
                    Ok(Ok(done)) => Ok(done),
                    Ok(Err(error)) => Err(format!("{name}: {error}").into()),
                    Err(_) => Err(format!("{name}: its thread panicked").into()),
                };
                names.into_iter().zip(ended).map(result).collect()
            })
        })
    }
}

/// Of this process and of all that it has waited for, in seconds. Source: `/proc/self/stat`, in ticks of 10 ms.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let behind_name = stat.rsplit(") ").next().unwrap_or_default();
    let ticks = behind_name.split(' ').skip(11).take(4).filter_map(|field| field.parse::<f64>().ok());
    ticks.sum::<f64>() / 100.0
}

impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<24} {:>8} {:>9}", "step", "seconds", "CPU-s")?;
        for StepTime { name, wall, cpu } in self.took.lock().map_err(|_| fmt::Error)?.iter() {
            let cpu = cpu.map(|cpu| format!("{cpu:.0}")).unwrap_or_default();
            writeln!(f, "{name:<24} {:>8.0} {cpu:>9}", wall.as_secs_f64())?;
        }
        write!(f, "{:<24} {:>8.0} {:>9.0}", "in all", self.started.elapsed().as_secs_f64(), cpu_seconds())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_beside_each_other_all_end_and_their_results_keep_the_order() {
        let steps = Steps::begin();
        let (sender, receiver) = std::sync::mpsc::channel();
        // The first one ends only after the second one: they do run at once.
        let first: Step<'_, u32> = ("first", Box::new(move || Ok(receiver.recv()?)));
        let second: Step<'_, u32> = ("second", Box::new(move || Ok(sender.send(1).map(|()| 2)?)));
        assert_eq!(steps.in_parallel("both", vec![first, second]).unwrap(), [1, 2]);
        let text = steps.to_string();
        // Which of them is noted first is a race.
        assert!(["  first ", "  second ", "both ", "in all "].iter().all(|part| text.contains(part)), "{text}");
    }

    #[test]
    fn cpu_seconds_of_a_child_count_once_it_was_waited_for() {
        let before = cpu_seconds();
        let script = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
        std::process::Command::new("sh").args(["-c", script]).status().unwrap();
        assert!(cpu_seconds() > before);
    }

    #[test]
    fn error_is_reported_with_its_step_after_the_others_have_ended() {
        let steps = Steps::begin();
        let broken: Step<'_, ()> = ("broken", Box::new(|| Err("no disk".into())));
        let sound: Step<'_, ()> = ("sound", Box::new(|| Ok(())));
        assert_eq!(steps.in_parallel("both", vec![broken, sound]).unwrap_err().to_string(), "broken: no disk");
        assert!(steps.to_string().contains("sound "), "{steps}");
    }
}
