//! Faults of the mock driver: at most one for each call.

use crate::model::nearest::nearest;
use crate::runner::drivers::ConfigProblem;
use crate::runner::drivers::fields::{ConfigFields, error};

macro_rules! words {
    ($(#[$of:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal, $about:literal;)* }) => {
        $(#[$of])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $($(#[$doc])* $variant,)* }
        impl $name {
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];
            /// Its name in a job file.
            pub fn word(self) -> &'static str { match self { $($name::$variant => $word,)* } }
            /// Its description.
            pub fn about(self) -> &'static str { match self { $($name::$variant => $about,)* } }
        }
    };
}

words! {
    /// A call in the life of a task.
    Call {
        Start = "start", "starting the task";
        Recover = "recover", "recovering the task after a restart of the agent";
        Wait = "wait", "waiting for its exit";
        Signal = "signal", "sending a signal";
        Kill = "kill", "killing the task";
        Destroy = "destroy", "removing what the task left";
        Stats = "stats", "reporting its usage";
    }
}

words! {
    /// What happens instead.
    Fault {
        Hang = "hang", "the call never returns, and nothing is done; `stats`: no second sample";
        Die = "die", "the driver panics during the call, each time; `start`: when the task already runs";
        DieOnce = "die_once", "the same, the first time only";
        Refuse = "refuse",
            "the call returns an error; `wait`: an unknown exit, while the task still runs; `stats`: no sample";
        Lie = "lie",
            "the call reports success, and nothing is done; `wait`: exit code 0, while the task still runs; `recover`: \
             never started; `stats`: counters fall";
        Garbage = "garbage",
            "the call returns impossible values: an attempt of another task, times in the far future, counters at \
             their limit, an endless text";
        Repeat = "repeat", "the call is done and reported twice: a second signal, a second exit with another exit code";
    }
}

/// Text for `garbage`.
pub fn endless_text() -> String {
    "\u{1b}[2J\0garbage\u{7}".repeat(10_000)
}

/// The fault of each call, in the order of [`Call::ALL`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Faults([Option<Fault>; Call::ALL.len()]);

impl Faults {
    pub fn of(&self, call: Call) -> Option<Fault> {
        self.0[call as usize]
    }

    /// `faults = { start = "hang", kill = "lie" }`.
    pub fn take(fields: &mut ConfigFields<'_>) -> Faults {
        let mut faults = Faults::default();
        for (call, fault) in fields.texts_by_name("faults") {
            let place = format!("faults.{call}");
            let unknown = |what: &str, word: &str, known: &[&'static str], of_name| {
                let advice = match nearest(word, known.iter().copied()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("there are {}", known.join(", ")),
                };
                let message = format!("there is no {what} {word:?}");
                ConfigProblem { advice: Some(advice), of_name, ..error(&place, message) }
            };
            let calls: Vec<_> = Call::ALL.iter().map(|c| c.word()).collect();
            let words: Vec<_> = Fault::ALL.iter().map(|f| f.word()).collect();
            let at = calls.iter().position(|c| *c == call).ok_or_else(|| unknown("call", &call, &calls, true));
            let known = Fault::ALL.iter().find(|f| f.word() == fault);
            let known = known.ok_or_else(|| unknown("fault", &fault, &words, false));
            if let (Some(at), Some(known)) = (fields.or_collect(at), fields.or_collect(known)) {
                faults.0[at] = Some(*known);
            }
        }
        faults
    }
}
