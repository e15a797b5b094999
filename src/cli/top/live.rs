//! The screen that lives: looks, keys and signals come in on one channel, and what changed is drawn.
//!
//! ```text
//! looks (a thread): each interval, or at once when something else is wanted ──┐
//! keys, mouse, size (a thread)                                                 ├──► channel ──► state ──► screen
//! signals (a thread)                                                           ┘
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use ratatui::crossterm::event::{self, Event};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::draw;
use super::feed::{FeedQuery, FeedUpdate, TopFeed};
use super::lines::{TableOptions, lines};
use super::rates::{RateFrame, RateTracker, RowKey};
use super::reply::{OnDevices, on_devices};
use super::scene::{Details, EventLine, TopScene};
use super::state::{InputOutcome, ScreenState};
use super::terminal::Screen;
use crate::cli::devices;
use crate::cli::exit::{CliError, CliExit, CliResult};
use crate::cli::output::{Paint, printable};
use crate::model::units::Timestamp;

const MAX_EVENTS: usize = 1000;

enum LiveMessage {
    Update(Result<Box<FeedUpdate>, CliError>),
    Input(Event),
    /// The terminal says nothing more.
    NoInput,
    Suspend,
    /// A signal let it go on.
    Continue,
    End,
}

/// What is known, and shown of it.
struct LiveView {
    tracker: RateTracker,
    frame: RateFrame,
    on_devices: BTreeMap<RowKey, OnDevices>,
    devices: Vec<String>,
    events: VecDeque<EventLine>,
    details: Option<Details>,
    problem: Option<String>,
    state: ScreenState,
    from: String,
    colour: bool,
}

pub fn run(feed: TopFeed, choice: TableOptions, interval: Duration, paint: Paint) -> CliResult {
    let (message_tx, message) = mpsc::channel();
    let (request_tx, requests) = mpsc::channel();
    let from = feed.from();
    listen_for_signals(message_tx.clone())?;
    // Before anything is asked for: an agent that is slow is waited for on a screen that can be left.
    let mut screen = Screen::open()?;
    spawn("input", {
        let message_tx = message_tx.clone();
        move || read_input(&message_tx)
    })?;
    spawn("looks", move || poll_feed(feed, interval, &requests, &message_tx))?;
    let mut live = LiveView {
        tracker: RateTracker::default(),
        frame: RateFrame::default(),
        on_devices: BTreeMap::new(),
        devices: Vec::new(),
        events: VecDeque::new(),
        details: None,
        problem: None,
        state: ScreenState::of(choice),
        from,
        colour: paint.0,
    };
    loop {
        screen.draw(|buffer| live.draw(buffer))?;
        let mut next = message.recv().map_err(|_| CliError::failed("the thread that reads has ended"))?;
        // What came together is drawn together.
        loop {
            match live.take(next) {
                InputOutcome::Quit => return Ok(CliExit::Done),
                InputOutcome::Suspend => screen.suspend()?,
                InputOutcome::Redraw => screen.forget()?,
                // The sampling thread has ended: the next message on the channel says so.
                InputOutcome::Query => drop(request_tx.send(live.query())),
                InputOutcome::Draw | InputOutcome::Nothing => {}
            }
            match message.try_recv() {
                Ok(more) => next = more,
                Err(_) => break,
            }
        }
    }
}

impl LiveView {
    fn take(&mut self, message: LiveMessage) -> InputOutcome {
        match message {
            LiveMessage::Update(update) => {
                match update {
                    Ok(update) => self.apply(*update),
                    Err(error) => {
                        let when = if self.frame.epoch == 0 { "" } else { "; what is shown is from before" };
                        self.problem = Some(format!("{}{when}", printable(&error.message)));
                    }
                }
                InputOutcome::Draw
            }
            LiveMessage::Input(event) => {
                let lines = lines(&self.frame.rows, &self.state.choice);
                self.state.input(&event, &lines)
            }
            LiveMessage::Suspend => InputOutcome::Suspend,
            LiveMessage::Continue => InputOutcome::Redraw,
            LiveMessage::NoInput | LiveMessage::End => InputOutcome::Quit,
        }
    }

    fn query(&self) -> FeedQuery {
        FeedQuery { view: self.state.view, open: self.state.open.clone() }
    }

    fn apply(&mut self, update: FeedUpdate) {
        let FeedUpdate { tasks, devices, growth, events, details } = update;
        self.problem = None;
        growth.into_iter().for_each(|growth| self.tracker.grow(growth));
        if let Some(report) = devices {
            self.on_devices = on_devices(&report);
            self.devices = devices::table(&report.devices, None, Paint(false)).lines().map(str::to_owned).collect();
            let down = report.plugins.iter().filter(|plugin| !plugin.up).map(devices::down);
            self.devices.extend(down);
        }
        self.events.extend(events);
        while self.events.len() > MAX_EVENTS {
            self.events.pop_front();
        }
        self.details = details;
        let frame = self.tracker.frame(&tasks, &self.on_devices);
        if !self.state.paused || self.frame.epoch == 0 {
            self.frame = frame;
        }
    }

    fn draw(&mut self, buffer: &mut ratatui::buffer::Buffer) {
        let lines = lines(&self.frame.rows, &self.state.choice);
        let curves = self.state.open.as_ref().and_then(|open| self.tracker.curves(&open.key));
        let scene = TopScene {
            frame: &self.frame,
            lines: &lines,
            from: &self.from,
            problem: self.problem.as_deref(),
            devices: &self.devices,
            events: self.events.make_contiguous(),
            details: self.details.as_ref(),
            curves,
            now: Timestamp::from_system(SystemTime::now()),
            colour: self.colour,
        };
        draw::draw(buffer, &mut self.state, &scene);
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), CliError> {
    let started = thread::Builder::new().name(name.to_owned()).spawn(work);
    started.map(drop).map_err(|error| CliError::failed(format!("cannot start a thread: {error}")))
}

/// Ends when the receiver is gone.
fn read_input(sender: &Sender<LiveMessage>) {
    loop {
        let message = event::read().map_or(LiveMessage::NoInput, LiveMessage::Input);
        let is_last = matches!(message, LiveMessage::NoInput);
        if sender.send(message).is_err() || is_last {
            return;
        }
    }
}

/// A look each interval, and at once when something else is on the screen. An agent that is gone is asked again at the
/// next one.
fn poll_feed(mut feed: TopFeed, interval: Duration, requests: &Receiver<FeedQuery>, sender: &Sender<LiveMessage>) {
    feed.settle();
    let mut query = FeedQuery::default();
    loop {
        let next = Instant::now() + interval;
        if sender.send(LiveMessage::Update(feed.poll(&query).map(Box::new))).is_err() {
            return;
        }
        match requests.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(newer) => query = requests.try_iter().last().unwrap_or(newer),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn listen_for_signals(sender: Sender<LiveMessage>) -> Result<(), CliError> {
    let cannot = |error: std::io::Error| CliError::failed(format!("cannot listen for signals: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
    let listen = |kind| -> Result<Signal, CliError> {
        let _inside = runtime.enter();
        signal(kind).map_err(cannot)
    };
    let raw = |signal: rustix::process::Signal| SignalKind::from_raw(signal.as_raw());
    let mut ends = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?, listen(SignalKind::hangup())?);
    let mut stop = listen(raw(rustix::process::Signal::TSTP))?;
    let mut go_on = listen(raw(rustix::process::Signal::CONT))?;
    spawn("signals", move || {
        runtime.block_on(async {
            loop {
                let message = tokio::select! {
                    _ = ends.0.recv() => LiveMessage::End,
                    _ = ends.1.recv() => LiveMessage::End,
                    _ = ends.2.recv() => LiveMessage::End,
                    _ = stop.recv() => LiveMessage::Suspend,
                    _ = go_on.recv() => LiveMessage::Continue,
                };
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
    })
}
