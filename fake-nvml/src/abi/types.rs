//! The structures of `nvml.h`, as far as functions here fill them. `tests/layout.rs` has a C compiler compare them with
//! the header.

use std::ffi::{c_char, c_double, c_int, c_longlong, c_uint, c_ulonglong, c_void};

/// `nvmlDevice_t`: never looked into, a number that the state knows.
pub type Handle = *mut c_void;

/// Each structure with its name in the header, and its size and offsets for the test of the layout.
macro_rules! structs {
    ($($(#[$meta:meta])* $name:ident = $c_name:ident { $($field:ident = $c_field:ident: $type:ty),* $(,)? })*) => {
        $($(#[$meta])*
        #[repr(C)]
        #[derive(Debug, Clone, Copy)]
        pub struct $name { $(pub $field: $type),* })*

        /// Of each structure: its name in C, its size, and each field's name in C and offset.
        pub fn layouts() -> Vec<(&'static str, usize, Vec<(&'static str, usize)>)> {
            vec![$((
                stringify!($c_name),
                size_of::<$name>(),
                vec![$((stringify!($c_field), std::mem::offset_of!($name, $field))),*],
            )),*]
        }
    };
}

structs! {
    PciInfo = nvmlPciInfo_t {
        bus_id_legacy = busIdLegacy: [c_char; 16],
        domain = domain: c_uint,
        bus = bus: c_uint,
        device = device: c_uint,
        device_id = pciDeviceId: c_uint,
        subsystem_id = pciSubSystemId: c_uint,
        bus_id = busId: [c_char; 32],
    }
    Rates = nvmlUtilization_t { gpu = gpu: c_uint, memory = memory: c_uint }
    MemoryInfo = nvmlMemory_t { total = total: c_ulonglong, free = free: c_ulonglong, used = used: c_ulonglong }
    MemoryInfo2 = nvmlMemory_v2_t {
        version = version: c_uint,
        total = total: c_ulonglong,
        reserved = reserved: c_ulonglong,
        free = free: c_ulonglong,
        used = used: c_ulonglong,
    }
    Bar1 = nvmlBAR1Memory_t {
        total = bar1Total: c_ulonglong,
        free = bar1Free: c_ulonglong,
        used = bar1Used: c_ulonglong,
    }
    Temperature = nvmlTemperature_t {
        version = version: c_uint,
        sensor = sensorType: c_uint,
        celsius = temperature: c_int,
    }
    ViolationTime = nvmlViolationTime_t {
        reference = referenceTime: c_ulonglong,
        violation = violationTime: c_ulonglong,
    }
    ProcessInfo = nvmlProcessInfo_t {
        pid = pid: c_uint,
        memory = usedGpuMemory: c_ulonglong,
        gpu_instance = gpuInstanceId: c_uint,
        compute_instance = computeInstanceId: c_uint,
    }
    ProcessInfoV1 = nvmlProcessInfo_v1_t { pid = pid: c_uint, memory = usedGpuMemory: c_ulonglong }
    UtilizationSample = nvmlProcessUtilizationSample_t {
        pid = pid: c_uint,
        timestamp = timeStamp: c_ulonglong,
        sm = smUtil: c_uint,
        memory = memUtil: c_uint,
        encoder = encUtil: c_uint,
        decoder = decUtil: c_uint,
    }
    AccountingStats = nvmlAccountingStats_t {
        gpu = gpuUtilization: c_uint,
        memory = memoryUtilization: c_uint,
        max_memory = maxMemoryUsage: c_ulonglong,
        time = time: c_ulonglong,
        start_time = startTime: c_ulonglong,
        running = isRunning: c_uint,
        reserved = reserved: [c_uint; 5],
    }
    FieldValue = nvmlFieldValue_t {
        id = fieldId: c_uint,
        scope = scopeId: c_uint,
        timestamp = timestamp: c_longlong,
        latency = latencyUsec: c_longlong,
        kind = valueType: c_uint,
        code = nvmlReturn: c_uint,
        // A union of numbers: the bytes of the widest.
        value = value: u64,
    }
    Attributes = nvmlDeviceAttributes_t {
        multiprocessors = multiprocessorCount: c_uint,
        copy_engines = sharedCopyEngineCount: c_uint,
        decoders = sharedDecoderCount: c_uint,
        encoders = sharedEncoderCount: c_uint,
        jpeg = sharedJpegCount: c_uint,
        ofa = sharedOfaCount: c_uint,
        gpu_slices = gpuInstanceSliceCount: c_uint,
        compute_slices = computeInstanceSliceCount: c_uint,
        memory_mib = memorySizeMB: c_ulonglong,
    }
    EventData = nvmlEventData_t {
        device = device: Handle,
        kind = eventType: c_ulonglong,
        data = eventData: c_ulonglong,
        gpu_instance = gpuInstanceId: c_uint,
        compute_instance = computeInstanceId: c_uint,
    }
    GpmSupport = nvmlGpmSupport_t { version = version: c_uint, supported = isSupportedDevice: c_uint }
    GpmMetric = nvmlGpmMetric_t {
        id = metricId: c_uint,
        code = nvmlReturn: c_uint,
        value = value: c_double,
        // Three names, which a client need not have.
        names = metricInfo: [*const c_char; 3],
    }
    GpmMetrics = nvmlGpmMetricsGet_t {
        version = version: c_uint,
        count = numMetrics: c_uint,
        first = sample1: Handle,
        second = sample2: Handle,
        metrics = metrics: [GpmMetric; 210],
    }
}
