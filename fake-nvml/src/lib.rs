//! A library that answers as NVIDIA's NVML does, with devices out of a file: for tests of whatever reads GPUs, where
//! there is none.
//!
//! It is two things. Built as `libfake_nvml.so` and put somewhere as `libnvidia-ml.so.1`, it is loaded like the real
//! one (`LD_LIBRARY_PATH`, `Nvml::builder().lib_path(..)`) and plays a scenario: the file `fake-nvml.json` beside it,
//! or the one that the variable `FAKE_NVML` names. Used as a crate, it writes scenarios and puts the library in its
//! place:
//!
//! ```ignore
//! use fake_nvml::{Device, Fault, Process, Scenario, codes};
//!
//! let scenario = Scenario::new()
//!     .with(Device::of("h100").runs(Process::new(4711, 8 << 30).uses(1_000_000, 37)))
//!     .with(Device::of("t4").refuses("nvmlDeviceGetEncoderUtilization"))
//!     .fault(Fault::answers("nvmlInit_v2", codes::DRIVER_NOT_LOADED).times(2))
//!     .fault(Fault::hangs("nvmlDeviceGetTemperature").on(1).after(10));
//! let gpus = fake_nvml::install(directory, &scenario)?;      // directory/libnvidia-ml.so.1, directory/fake-nvml.json
//! let nvml = Nvml::builder().lib_path(gpus.library().as_os_str()).init()?;
//!
//! // While a client reads it: what changes is seen at the next call.
//! gpus.edit(|scenario| {
//!     scenario.devices[0].lost = true;                       // every call about it: GPU is lost
//!     scenario.devices[1].temperature_celsius = Some(91);
//!     scenario.xid(1, 79);                                   // an event for clients that wait
//!     scenario.faults.clear();                               // what hung comes back
//! })?;
//! ```
//!
//! By hand, a scenario is JSON with the same names; a device has the values of its profile (`profiles/*.json`), but for
//! those that stand beside it, and a `null` takes one away:
//!
//! ```json
//! {"devices": [{"profile": "h100", "temperature_celsius": 64, "energy_mj": null}],
//!  "faults": [{"device": 0, "function": "nvmlDeviceGetName", "after": 3, "times": 1, "does": {"answers": 999}},
//!             {"device": 0, "does": {"slow_ms": 50}}, {"function": "nvmlEventSetWait_v2", "does": "hangs"}]}
//! ```
//!
//! - A device that is back after a reset: `lost` false and another `uuid`. Its old handles stay lost.
//! - An old driver: [`install_without`] leaves functions out of the library.
//! - Which calls were made: `record_calls`, then [`Installed::calls`]; or in the file that `FAKE_NVML_CALLS` names.
//! - Where there is no build directory, `FAKE_NVML_LIBRARY` names the built library.
//! - A client with a broken scenario gets the reason on standard error, and every call answers "unknown error".

// The C functions cannot be had without; each place says why it holds.
#![allow(unsafe_code)]
#![warn(clippy::undocumented_unsafe_blocks)]
// Their names are NVIDIA's, and what they demand of who calls them is in NVIDIA's documentation.
#![allow(non_snake_case, clippy::missing_safety_doc)]

pub mod abi;
pub mod codes;
mod fault;
pub mod functions;
mod install;
mod profile;
pub mod scenario;
mod state;

pub use fault::{Effect, Fault};
pub use install::{Installed, NAME, calls, install, install_without, library};
pub use profile::names as profiles;
pub use scenario::{Device, Instance, Process, Scenario};
