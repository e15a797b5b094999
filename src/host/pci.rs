//! PCI devices, independent of the loaded drivers.
//!
//! Source: `/sys/bus/pci/devices/*/{vendor,class,driver}`.

use std::path::Path;

use super::roots::Roots;

/// The vendor ID as in `/sys`.
pub const NVIDIA: &str = "0x10de";
/// Class prefix of display controllers: VGA (`0x0300`), XGA, 3D (`0x0302`) and others.
const DISPLAY: &str = "0x03";
/// Drivers that reserve a device for a virtual machine.
const GUEST_DRIVERS: [&str; 2] = ["vfio-pci", "pci-stub"];

/// A display or 3D controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DisplayController {
    /// The bound kernel driver.
    pub driver: Option<String>,
}

impl DisplayController {
    /// Whether the device is reserved for, or in use by, a virtual machine.
    pub fn is_reserved_for_guest(&self) -> bool {
        self.driver.as_deref().is_some_and(|driver| GUEST_DRIVERS.contains(&driver))
    }
}

/// The display controllers of a vendor. Entries that cannot be read are skipped; a host may have no PCI bus.
pub fn displays(roots: &Roots, vendor: &str) -> Vec<DisplayController> {
    let all = std::fs::read_dir(roots.sys.join("bus/pci/devices"));
    let all = all.into_iter().flatten().flatten().map(|entry| entry.path());
    all.filter(|at| text(at, "vendor") == vendor && text(at, "class").starts_with(DISPLAY))
        .map(|at| {
            let driver = std::fs::read_link(at.join("driver")).ok();
            DisplayController { driver: driver.and_then(|link| Some(link.file_name()?.to_string_lossy().into_owned())) }
        })
        .collect()
}

fn text(at: &Path, name: &str) -> String {
    std::fs::read_to_string(at.join(name)).map(|text| text.trim().to_owned()).unwrap_or_default()
}
