//! What a function of NVML answers: `nvmlReturn_t`.

use std::ffi::CStr;

/// One of `nvmlReturn_t`; drivers newer than the header have more.
pub type Code = u32;

macro_rules! codes {
    ($($name:ident = $code:literal, $text:literal;)*) => {
        $(pub const $name: Code = $code;)*

        /// The sentence of `nvmlErrorString`.
        pub(crate) fn text(code: Code) -> &'static CStr {
            match code {
                $($code => $text,)*
                _ => c"Unknown Error",
            }
        }
    };
}

codes! {
    SUCCESS = 0, c"Success";
    UNINITIALIZED = 1, c"Uninitialized";
    INVALID_ARGUMENT = 2, c"Invalid Argument";
    NOT_SUPPORTED = 3, c"Not Supported";
    NO_PERMISSION = 4, c"Insufficient Permissions";
    NOT_FOUND = 6, c"Not Found";
    INSUFFICIENT_SIZE = 7, c"Insufficient Size";
    INSUFFICIENT_POWER = 8, c"Insufficient External Power";
    DRIVER_NOT_LOADED = 9, c"Driver Not Loaded";
    TIMEOUT = 10, c"Timeout";
    IRQ_ISSUE = 11, c"Interrupt Request Issue";
    LIBRARY_NOT_FOUND = 12, c"NVML Shared Library Not Found";
    FUNCTION_NOT_FOUND = 13, c"Function Not Found";
    CORRUPTED_INFOROM = 14, c"Corrupted infoROM";
    GPU_IS_LOST = 15, c"GPU is lost";
    RESET_REQUIRED = 16, c"GPU requires reset";
    OPERATING_SYSTEM = 17, c"GPU access blocked by the operating system";
    LIB_RM_VERSION_MISMATCH = 18, c"Driver/library version mismatch";
    IN_USE = 19, c"In use by another client";
    MEMORY = 20, c"Insufficient Memory";
    NO_DATA = 21, c"No data";
    INSUFFICIENT_RESOURCES = 23, c"Insufficient Resources";
    ARGUMENT_VERSION_MISMATCH = 25, c"Argument version mismatch";
    DEPRECATED = 26, c"Deprecated";
    NOT_READY = 27, c"Not ready";
    GPU_NOT_FOUND = 28, c"No GPUs were found";
    INVALID_STATE = 29, c"Invalid state";
    UNKNOWN = 999, c"Unknown Error";
}
