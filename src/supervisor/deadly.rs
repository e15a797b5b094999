//! A supervisor that is killed at a moment of its life: for tests alone, compiled with debug assertions only, so that no release
//! knows of it. `ALLOSTAT_TEST_DIE_AT=recorded` names the moment.

use rustix::process::{Signal, getpid, kill_process};

/// SIGKILL to ourselves if this is the moment.
pub fn at(moment: &str) {
    if std::env::var("ALLOSTAT_TEST_DIE_AT").is_ok_and(|asked| asked == moment) {
        // It cannot be refused: it is our own process.
        let _ = kill_process(getpid(), Signal::KILL);
        loop {
            std::thread::park();
        }
    }
}
