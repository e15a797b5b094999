//! The fake NVML lays its structures out as NVIDIA's header says, and has only functions that the header declares.
//!
//! Promise (Code, boards and alerts): The fake NVML has the structures of NVIDIA's header, and no function that the
//! header lacks

use std::fmt::Write as _;
use std::process::Command;

use fake_nvml::{abi, functions};

/// The header, which is read where it lies and never copied.
fn header() -> Option<std::path::PathBuf> {
    crate::common::part_file("nvml-header", "nvidia/nvml_dev/include/nvml.h")
}

/// A C file that can be compiled where each size and offset is as Rust has it, and where each function is declared.
fn assertions() -> String {
    let mut text = "#define NVML_NO_UNVERSIONED_FUNC_DEFS\n#include <stddef.h>\n#include <nvml.h>\n".to_owned();
    for (name, size, fields) in abi::types::layouts() {
        let _ = writeln!(text, "_Static_assert(sizeof({name}) == {size}, \"size of {name}\");");
        for (field, offset) in fields {
            let _ = writeln!(text, "_Static_assert(offsetof({name}, {field}) == {offset}, \"{name}.{field}\");");
        }
    }
    for function in functions::ALL {
        let _ = writeln!(text, "const void *the_{function} = (const void *){function};");
    }
    text
}

/// What the compiler that links Rust says of a C file.
fn compile(include: &std::path::Path, text: &str) -> std::process::Output {
    let dir = crate::common::test_dir();
    let file = dir.path().join("assertions.c");
    std::fs::write(&file, text).expect("a file in a directory of our own");
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Werror", "-c", "-o", "/dev/null"]).arg("-I").arg(include).arg(file);
    cc.output().expect("a host that builds Rust has a C compiler, which links it")
}

#[test]
fn structures_and_functions_of_the_fake_nvml_are_those_of_the_header() {
    let Some(header) = header() else { skip_test!("no-nvml-header") };
    let include = header.parent().expect("it lies in a directory");
    let text = assertions();
    let output = compile(include, &text);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // The compiler does look: one byte more, one name less.
    for wrong in [
        text.replace("sizeof(nvmlPciInfo_t) == ", "sizeof(nvmlPciInfo_t) == 1 + "),
        text.replace("GetName;", "GetNames;"),
    ] {
        assert_ne!(wrong, text);
        assert!(!compile(include, &wrong).status.success());
    }
}
