//! NVML as C calls it, a subject a file. `frame` makes functions of what each says; [`types`] are NVIDIA's structures.

mod device;
mod events;
mod fields;
mod frame;
mod gpm;
mod mig;
mod processes;
mod system;
pub mod types;
