//! Dashboards and alerts: every file in `dashboards/` and `alerts/` is walked, nothing is registered.
//!
//! `laws` and `layout` read them as they lie there, `rules` lets promtool run the rule tests, `flat` holds their values
//! for a day, `live` and `observed` ask a real Prometheus that scrapes a real agent for every expression, `runbooks`
//! holds a page for each alert, `pictures` one of each board, `schema` compiles boards by Grafana's types. `native` has
//! a Prometheus without buckets. `headlines` asks the first row of each board for an old event, `namesakes` has two
//! hosts with the same names, `scraped` runs every documented scrape configuration and relabelling. `pushed` compares
//! what a store gets by OTLP with what it scrapes. `renamed` has former names of metrics beside the new ones.

mod alertmanager;
mod deploy;
mod files;
mod flat;
mod fleets;
mod gpus;
mod headlines;
mod laws;
mod layout;
mod live;
mod marks;
mod namesakes;
mod native;
mod observed;
mod pictures;
mod profiles;
mod promql;
mod pushed;
mod renamed;
mod rules;
mod runbooks;
mod schema;
mod scraped;
mod stores;
mod style;
