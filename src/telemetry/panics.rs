//! Panics as lines of the log: what goes wrong in one call or one task of the runtime is an error like others, and no
//! text of its own on the terminal.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

thread_local! {
    /// Where the panic was that [`catch`] waits for on this thread. `None`: none does.
    static AT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// A panic that was caught.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Panic {
    pub message: String,
    /// `src/file.rs:12:5`; empty where panics are not lines of the log.
    pub at: String,
}

/// From now on panics are lines of the log. Once, with [`super::logging::init`].
pub(super) fn log() {
    std::panic::set_hook(Box::new(log_panic));
}

/// The caller reports a caught panic.
pub fn catch<T>(work: impl FnOnce() -> T) -> Result<T, Box<Panic>> {
    let outer = AT.replace(Some(String::new()));
    let result = catch_unwind(AssertUnwindSafe(work));
    let at = AT.replace(outer).unwrap_or_default();
    result.map_err(|panic| Box::new(Panic { message: words(panic.as_ref()), at }))
}

fn log_panic(panic: &PanicHookInfo<'_>) {
    let at = panic.location().map(ToString::to_string).unwrap_or_default();
    let caught = AT.with_borrow_mut(|caught| caught.as_mut().map(|caught| caught.clone_from(&at)).is_some());
    if !caught {
        let thread = std::thread::current();
        // As one line, whatever it says.
        let error = words(panic.payload());
        tracing::error!(thread = thread.name().unwrap_or("without a name"), at, ?error, "a panic");
    }
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it has no message".to_owned())
}

/// Ignores poisoning: the panic was reported, and every holder of a lock leaves its data consistent at each step.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caught_panic_has_its_message() {
        assert_eq!(catch(|| 7), Ok(7));
        let error = |result: Result<(), Box<Panic>>| result.unwrap_err().message;
        assert_eq!(error(catch(|| panic!("plain"))), "plain");
        assert_eq!(error(catch(|| panic!("with {}", 1))), "with 1");
        assert_eq!(error(catch(|| std::panic::panic_any(1))), "it has no message");
        let nested = catch(|| {
            let inner = catch(|| panic!("inner"));
            assert_eq!(inner.unwrap_err().message, "inner");
            panic!("outer")
        });
        assert_eq!(error(nested), "outer");
    }

    /// Logging is the whole process's: a process of its own.
    #[test]
    fn a_panic_is_one_line_of_the_log_and_one_that_is_caught_is_its_catchers() {
        const ALONE: &str = "ALLOSTAT_TEST_PANICS";
        if std::env::var_os(ALONE).is_some() {
            super::super::logging::init(super::super::LogLevel::Error).unwrap();
            let thread = std::thread::Builder::new().name("odd".to_owned());
            let died = thread.spawn(|| panic!("first\nsecond")).unwrap().join();
            assert!(died.is_err());
            let caught = catch(|| panic!("quiet")).unwrap_err();
            assert!(caught.at.contains("panics.rs:"), "{caught:?}");
            return;
        }
        let name = "telemetry::panics::tests::a_panic_is_one_line_of_the_log_and_one_that_is_caught_is_its_catchers";
        let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
        alone.args(["--exact", name, "--nocapture"]).env(ALONE, "1").env("RUST_BACKTRACE", "1").env("NO_COLOR", "1");
        let ran = alone.output().unwrap();
        let text = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{text}");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 1, "{text}");
        for word in ["ERROR", "a panic", "thread=\"odd\"", "panics.rs:", "error=\"first\\nsecond\""] {
            assert!(lines[0].contains(word), "{word}: {text}");
        }
    }
}
