//! `allostat events`

use super::exit::{CliResult, Exit};
use super::shape::EventPage;
use super::{Session, follow};
use crate::api::encode;

/// Show what happened: of one alloc, or of all
#[derive(Debug, clap::Args)]
pub struct Events {
    /// An id, or a unique beginning of one
    #[arg(value_parser = super::alloc_id)]
    alloc: Option<String>,
    /// As the API says it
    #[arg(long)]
    json: bool,
}

impl Events {
    pub fn run(self, session: &mut Session<'_>) -> CliResult {
        let mut agent = session.connect()?;
        let filter = self.alloc.as_deref().map_or(String::new(), |id| format!("&alloc={}", encode(id)));
        let mut since = 0;
        let mut all = Vec::new();
        let mut missed = 0;
        loop {
            let page: EventPage = agent.get(&format!("/v1/events?since={since}{filter}"))?;
            missed += page.missed;
            all.extend(page.events);
            if page.next <= since {
                break;
            }
            since = page.next;
        }
        // Numbered as they were recorded; what happened while no agent was there was recorded late.
        all.sort_by_key(|event| (event.time, event.seq));
        if self.json {
            session.json(&serde_json::json!({ "events": all, "next": since, "missed": missed }))?;
            return Ok(Exit::Done);
        }
        for event in &all {
            writeln!(session.out, "{}", follow::line(event, session.paint))?;
        }
        if missed > 0 && self.alloc.is_none() {
            session.remark(&format!("{missed} older events are no longer kept"));
        }
        Ok(Exit::Done)
    }
}
