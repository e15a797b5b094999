//! A supervisor that is killed or stopped at a moment of its life: for tests alone, compiled with debug assertions
//! only, so that no release knows of it. `ALLOSTAT_TEST_DIE_AT=recorded` and `ALLOSTAT_TEST_STOP_AT=opened` name the
//! moment.

use rustix::process::{Signal, getpid, kill_process};

/// SIGKILL or SIGSTOP to ourselves if this is the moment.
pub fn at(moment: &str) {
    let is_requested = |name: &str| std::env::var(name).is_ok_and(|requested| requested == moment);
    if is_requested("ALLOSTAT_TEST_STOP_AT") {
        let _ = kill_process(getpid(), Signal::STOP);
    }
    if is_requested("ALLOSTAT_TEST_DIE_AT") {
        // It cannot be refused: it is our own process.
        let _ = kill_process(getpid(), Signal::KILL);
        loop {
            std::thread::park();
        }
    }
}
