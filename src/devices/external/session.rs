//! The conversation with a running plugin.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};

use super::client::{Client, GrpcCallError};
use super::known::{ExternalPlugin, PendingReservation};
use super::output::{LineSplitter, PluginOutput, PluginStream};
use super::program::PluginProcess;
use super::report::{self, InvalidField};
use super::settings::settings;
use crate::devices::plugin::{PluginError, PluginFault, PluginReports};
use crate::devices::protocol::certificate::TlsIdentity;
use crate::devices::protocol::handshake::Handshake;
use crate::devices::protocol::messages::{
    ClientConfig, ClientDriverConfig, ConfigSchema, Empty, FingerprintAnswer, HealthAnswer, HealthRequest, Interval,
    KIND_DEVICE, PluginInfo, ReserveAnswer, ReserveRequest, SERVING, SetConfig, StatsAnswer, StatsRequest, StdioData,
};
use crate::devices::protocol::methods::{
    API_VERSION, CONFIG, FINGERPRINT, HEALTH, HEALTH_OF, INFO, RESERVE, SCHEMA, SHUTDOWN, STATS, STDIO,
};
use crate::model::device::DeviceReservation;
use crate::model::id::DeviceId;
use crate::model::units::Timestamp;
use crate::telemetry::{chain, lock};

/// Maximum of concurrent reservation calls.
const CALLS: usize = 64;
/// The port range that a Nomad client reserves for plugins.
const PORTS: ClientDriverConfig = ClientDriverConfig { max_port: 14_512, min_port: 14_000 };
/// Maximum pause after a stream of readings ended.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Time to read the remaining output of a plugin that ended.
const LAST_WORDS: Duration = Duration::from_millis(100);

impl From<InvalidField> for PluginError {
    fn from(invalid: InvalidField) -> PluginError {
        PluginError::new(PluginFault::Invalid, invalid.to_string())
    }
}

fn protocol(what: impl Into<String>) -> PluginError {
    PluginError::new(PluginFault::Protocol, what)
}

pub(super) struct PluginSession<'a> {
    pub(super) external: &'a ExternalPlugin,
    pub(super) identity: &'a TlsIdentity,
    pub(super) output: &'a PluginOutput,
    pub(super) reports: &'a PluginReports,
}

impl PluginSession<'_> {
    /// Runs until the plugin fails or the agent stops. Then asks the plugin to shut down, where possible.
    pub(super) async fn run(&self, program: &mut PluginProcess) -> PluginError {
        let client = tokio::select! {
            biased;
            () = self.reports.ended() => return PluginError::stopped(),
            client = self.reach(program) => match client {
                Ok(client) => client,
                Err(error) => return error,
            },
        };
        let error = tokio::select! {
            biased;
            () = self.reports.ended() => PluginError::stopped(),
            error = self.run_tasks(&client) => error,
        };
        if !matches!(error.fault, PluginFault::Died | PluginFault::Timeout) {
            // The result does not matter: a signal follows.
            let _ = timeout(self.external.timeouts.grace, client.call::<Empty>(SHUTDOWN, &Empty {})).await;
        }
        error
    }

    pub(super) async fn read_remaining_output(&self) {
        sleep(LAST_WORDS).await;
    }

    async fn reach(&self, program: &mut PluginProcess) -> Result<Client, PluginError> {
        let timeouts = &self.external.timeouts;
        let line = timeout(timeouts.start, program.first_line(self.output)).await.map_err(|_| {
            let within = timeouts.start.as_secs_f64();
            PluginError::new(PluginFault::Timeout, format!("no handshake line within {within} s"))
        })?;
        let line =
            line.ok_or_else(|| PluginError::new(PluginFault::Died, "the process ended before its handshake line"))?;
        let handshake = Handshake::parse(&line).map_err(|e| protocol(e.to_string()))?;
        let tls = handshake.certificate.map(|peer| self.identity.client(peer)).transpose();
        let tls = tls.map_err(|e| protocol(chain(&e)))?;
        Ok(Client::connect(&handshake.listens, tls, timeouts.call).await?)
    }

    /// Runs all tasks of the connection until one of them fails.
    async fn run_tasks(&self, client: &Client) -> PluginError {
        if let Err(error) = self.introduce(client).await {
            return error;
        }
        tokio::spawn(read_output(client.clone(), self.output.clone()));
        let (known, devices) = watch::channel(None);
        let (calls, waiting) = mpsc::channel(CALLS);
        *lock(&self.external.calls) = Some(calls);
        tokio::select! {
            biased;
            error = self.fingerprints(client, &known) => error,
            error = self.stats(client, devices) => error,
            error = self.health(client) => error,
            error = reservations(client, waiting) => error,
        }
    }

    async fn introduce(&self, client: &Client) -> Result<(), PluginError> {
        let info: PluginInfo = client.call(INFO, &Empty {}).await?;
        if info.kind != KIND_DEVICE {
            return Err(protocol(format!("plugin type {} is not a device plugin ({KIND_DEVICE})", info.kind)));
        }
        if !info.api_versions.iter().any(|version| version == API_VERSION) {
            return Err(protocol(format!("plugin supports API versions {:?}, not {API_VERSION}", info.api_versions)));
        }
        let schema: ConfigSchema = client.call(SCHEMA, &Empty {}).await?;
        let msgpack = settings(schema.spec.as_ref(), &self.external.settings);
        let msgpack = msgpack.map_err(|e| PluginError::new(PluginFault::Failed, e.to_string()))?;
        let client_config = Some(ClientConfig { driver: Some(PORTS) });
        let config = SetConfig { msgpack, client: client_config, api_version: API_VERSION.to_owned() };
        client.call::<Empty>(CONFIG, &config).await?;
        let name = &info.name;
        tracing::info!(plugin = self.external.name, %name, version = info.version, "device plugin started");
        Ok(())
    }

    /// Reads the stream of device lists. A stream that ends is a failure of the plugin.
    async fn fingerprints(&self, client: &Client, known: &watch::Sender<Option<BTreeSet<DeviceId>>>) -> PluginError {
        let ended = async {
            let first = self.external.timeouts.report;
            let mut answers = match timeout(first, client.open::<FingerprintAnswer>(FINGERPRINT, &Empty {})).await {
                Ok(answers) => answers?,
                Err(_) => return Err(GrpcCallError::Timeout { method: FINGERPRINT, after: first }.into()),
            };
            let mut limit = first;
            loop {
                let Ok(answer) = timeout(limit, answers.next()).await else {
                    return Err(GrpcCallError::Timeout { method: FINGERPRINT, after: first }.into());
                };
                let Some(answer) = answer? else { return Ok(()) };
                let groups = report::groups(answer)?;
                let ids = groups.iter().flat_map(|group| &group.devices).map(|device| device.id.clone()).collect();
                if !self.reports.groups(groups) {
                    return Err(PluginError::stopped());
                }
                known.send_replace(Some(ids));
                // Later lists arrive only with changes.
                limit = Duration::MAX;
            }
        };
        match ended.await {
            Err(error) => error,
            Ok(()) => PluginError::new(PluginFault::Failed, "the plugin closed its device stream"),
        }
    }

    /// Reads the stream of readings, and opens it again when it ends. Without readings the devices stay listed.
    async fn stats(&self, client: &Client, mut known: watch::Receiver<Option<BTreeSet<DeviceId>>>) -> PluginError {
        // Fails only if the sender is dropped, which ends with this task.
        let _ = known.wait_for(Option::is_some).await;
        let mut pause = self.reports.tick;
        loop {
            let began = Instant::now();
            let why = match self.readings(client, &known).await {
                Ok(()) => PluginError::new(PluginFault::Failed, "the plugin closed its stream of readings"),
                Err(StreamEnd::Run(error)) => return error,
                Err(StreamEnd::Stream(error)) if error.is_unimplemented() => {
                    self.reports.fault(error.into());
                    return std::future::pending().await;
                }
                Err(StreamEnd::Stream(error)) => error.into(),
            };
            self.reports.fault(why);
            pause = if began.elapsed() > LONGEST_PAUSE { self.reports.tick } else { (pause * 2).min(LONGEST_PAUSE) };
            sleep(pause).await;
        }
    }

    async fn readings(
        &self,
        client: &Client,
        known: &watch::Receiver<Option<BTreeSet<DeviceId>>>,
    ) -> Result<(), StreamEnd> {
        let mut answers = client.open::<StatsAnswer>(STATS, &interval(self.reports.tick)).await?;
        let mut reported = Vec::new();
        while let Some(answer) = answers.next().await? {
            let now = Timestamp::from_system(SystemTime::now());
            let devices = known.borrow().clone().unwrap_or_default();
            let (readings, unknown) = report::readings(answer, &devices, now).map_err(|e| StreamEnd::Run(e.into()))?;
            for reading in readings {
                self.reports.reading(reading);
            }
            if unknown != reported {
                self.report_unlisted(&unknown);
                reported = unknown;
            }
        }
        Ok(())
    }

    /// These include devices that appeared and disappeared between two reports.
    fn report_unlisted(&self, unknown: &[DeviceId]) {
        if let Some(id) = unknown.first() {
            let what = format!("readings of {} unlisted devices, first {:?}", unknown.len(), id.as_str());
            self.reports.fault(PluginError::new(PluginFault::Invalid, what));
        }
    }

    /// A plugin that is stopped (SIGSTOP) or hangs in a library does not respond.
    async fn health(&self, client: &Client) -> PluginError {
        let question = HealthRequest { service: HEALTH_OF.to_owned() };
        loop {
            sleep(self.external.timeouts.health).await;
            match client.call::<HealthAnswer>(HEALTH, &question).await {
                Ok(HealthAnswer { status: SERVING }) => {}
                Ok(HealthAnswer { status }) => {
                    return PluginError::new(
                        PluginFault::Failed,
                        format!("the plugin reports that it is unhealthy (status {status})"),
                    );
                }
                Err(error) => return error.into(),
            }
        }
    }
}

/// Why the readings end.
enum StreamEnd {
    /// The plugin failed.
    Run(PluginError),
    /// The stream failed; another one may work.
    Stream(GrpcCallError),
}

impl From<GrpcCallError> for StreamEnd {
    fn from(error: GrpcCallError) -> StreamEnd {
        match error {
            GrpcCallError::Status { .. } => StreamEnd::Stream(error),
            other => StreamEnd::Run(other.into()),
        }
    }
}

fn interval(tick: Duration) -> StatsRequest {
    let seconds = i64::try_from(tick.as_secs()).unwrap_or(i64::MAX);
    let nanos = i32::try_from(tick.subsec_nanos()).unwrap_or(0);
    StatsRequest { collection_interval: Some(Interval { seconds, nanos }) }
}

/// Runs the calls concurrently, so one that hangs delays no other.
async fn reservations(client: &Client, mut waiting: mpsc::Receiver<PendingReservation>) -> PluginError {
    while let Some(PendingReservation { ids, answer }) = waiting.recv().await {
        let client = client.clone();
        // The task ends by the deadline of the call.
        tokio::spawn(async move {
            // The caller may have timed out.
            let _ = answer.send(reserved(&client, ids).await);
        });
    }
    // The sender exists as long as the plugin runs.
    std::future::pending().await
}

async fn reserved(client: &Client, device_ids: Vec<String>) -> Result<DeviceReservation, PluginError> {
    let answer: ReserveAnswer = client.call(RESERVE, &ReserveRequest { device_ids }).await?;
    Ok(report::reservation(answer.container_res.unwrap_or_default())?)
}

/// Reads the output that go-plugin captures: a full pipe would block the plugin. Plugins without this service write to
/// standard output directly.
async fn read_output(client: Client, output: PluginOutput) {
    let Ok(mut answers) = client.open::<StdioData>(STDIO, &Empty {}).await else { return };
    let mut lines = LineSplitter::default();
    while let Ok(Some(StdioData { data, .. })) = answers.next().await {
        lines.push(&data);
        std::iter::from_fn(|| lines.next()).for_each(|line| output.log_line(&line, PluginStream::Output));
    }
}
