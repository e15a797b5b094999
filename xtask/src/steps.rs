//! The steps of a long run: one after the other, or beside each other where they share nothing but the processor; how long each
//! took is told at the end.

use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::Result;

/// A step by its name, and what it does. Its lines say themselves whose they are: those of steps beside it come between them.
pub type Step<'a, T> = (&'a str, Box<dyn FnOnce() -> Result<T> + Send + 'a>);

#[derive(Debug)]
pub struct Steps {
    begun: Instant,
    took: Mutex<Vec<(String, Duration)>>,
}

impl Steps {
    pub fn begin() -> Steps {
        Steps { begun: Instant::now(), took: Mutex::default() }
    }

    pub fn step<T>(&self, name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let begun = Instant::now();
        let done = work();
        let mut took = self.took.lock().map_err(|_| "a step panicked while it was noted")?;
        took.push((name.to_owned(), begun.elapsed()));
        done
    }

    /// All at once, each to its end; the results in the order of the steps, or the first error.
    pub fn beside<T: Send>(&self, steps: Vec<Step<'_, T>>) -> Result<Vec<T>> {
        let names: Vec<&str> = steps.iter().map(|(name, _)| *name).collect();
        if names.is_empty() {
            return Ok(Vec::new());
        }
        println!("beside each other: {}", names.join(", "));
        std::thread::scope(|scope| {
            // An error of ours cannot leave its thread, its text can.
            let steps = steps.into_iter();
            let running: Vec<_> = steps
                .map(|(name, work)| scope.spawn(move || self.step(name, work).map_err(|e| e.to_string())))
                .collect();
            let ended: Vec<_> = running.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
            let result = |(name, ended): (&str, std::thread::Result<std::result::Result<T, String>>)| match ended {
                Ok(Ok(done)) => Ok(done),
                Ok(Err(error)) => Err(format!("{name}: {error}").into()),
                Err(_) => Err(format!("{name}: its thread panicked").into()),
            };
            names.into_iter().zip(ended).map(result).collect()
        })
    }
}

impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, took) in self.took.lock().map_err(|_| fmt::Error)?.iter() {
            write!(f, "{name} {:.0} s, ", took.as_secs_f64())?;
        }
        write!(f, "in all {:.0} s", self.begun.elapsed().as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_beside_each_other_all_end_and_their_results_keep_the_order() {
        let steps = Steps::begin();
        let (tell, told) = std::sync::mpsc::channel();
        // The first one ends only after the second one: they do run at once.
        let first: Step<'_, u32> = ("first", Box::new(move || Ok(told.recv()?)));
        let second: Step<'_, u32> = ("second", Box::new(move || Ok(tell.send(1).map(|()| 2)?)));
        assert_eq!(steps.beside(vec![first, second]).unwrap(), [1, 2]);
        let text = steps.to_string();
        // Which of them is noted first is a race.
        assert!(["first ", "second ", ", in all "].iter().all(|part| text.contains(part)), "{text}");
    }

    #[test]
    fn an_error_is_told_with_its_step_after_the_others_have_ended() {
        let steps = Steps::begin();
        let broken: Step<'_, ()> = ("broken", Box::new(|| Err("no disk".into())));
        let sound: Step<'_, ()> = ("sound", Box::new(|| Ok(())));
        assert_eq!(steps.beside(vec![broken, sound]).unwrap_err().to_string(), "broken: no disk");
        assert!(steps.to_string().contains("sound "), "{steps}");
    }
}
