//! PSI stall time of a task: CPU, memory, I/O, interrupts. Source: Documentation/accounting/psi.rst, `*.pressure` of
//! the unified tree (4.20; `irq` 6.1). A v1 host may mount that tree beside its v1 hierarchies.

use super::hierarchy::FileHierarchy;
use super::table::{KernelFile, SubjectFiles, values};
use crate::kernel::pressure;
use crate::model::measure::{Cell, ChangeTrigger, Measure};
use crate::model::profile::Profile::{Full, Standard};
use crate::model::usage::{Field, Usage};

macro_rules! psi {
    ($($name:literal, $some:ident, $full:ident;)*) => {
        &[
            $(KernelFile::new(
                FileHierarchy::Unified,
                $name,
                ChangeTrigger::Asleep,
                &[Field::$some, Field::$full],
                |raw, bytes| {
                    let (pressure, error) = values(bytes, |b| pressure::parse($name, b));
                    raw.usage.set(Field::$some, pressure.some_ns);
                    raw.usage.set(Field::$full, pressure.full_ns);
                    error
                },
            ),)*
            KernelFile::new(
                FileHierarchy::Unified,
                "irq.pressure",
                ChangeTrigger::Ran,
                &[Field::pressure_irq_full_ns],
                |raw, bytes| {
                    let (pressure, error) = values(bytes, |b| pressure::parse("irq.pressure", b));
                    raw.usage.set(Field::pressure_irq_full_ns, pressure.full_ns);
                    error
                },
            ),
        ]
    };
}

pub(super) static SUBJECT: SubjectFiles = SubjectFiles { measures: MEASURES, files: FILES };

const FILES: &[KernelFile] = psi! {
    "cpu.pressure", pressure_cpu_some_ns, pressure_cpu_full_ns;
    "memory.pressure", pressure_memory_some_ns, pressure_memory_full_ns;
    "io.pressure", pressure_io_some_ns, pressure_io_full_ns;
};

macro_rules! cells {
    ($($resource:literal, $kind:literal, $field:ident;)*) => {
        &[$(Cell::of(Field::$field, &[("resource", $resource), ("kind", $kind)]),)*]
    };
}

const MEASURES: &[Measure<Usage>] = &[Measure::new(
    "pressure_stall_seconds_total",
    "PSI stall time: some or all runnable processes waited for the resource.",
    cells! {
        "cpu", "some", pressure_cpu_some_ns;
        "cpu", "full", pressure_cpu_full_ns;
        "memory", "some", pressure_memory_some_ns;
        "memory", "full", pressure_memory_full_ns;
        "io", "some", pressure_io_some_ns;
        "io", "full", pressure_io_full_ns;
        "irq", "full", pressure_irq_full_ns;
    },
)
.in_profiles(Standard, Full, Full)
.sources("*.pressure of the cgroup v2 hierarchy beside v1", "*.pressure")
.absent_when("no cgroup v2 hierarchy; PSI is off (psi=0, or cgroup.pressure is 0); irq: kernel before 6.1")
.otlp("allostat.task.pressure.stall", "s")];
