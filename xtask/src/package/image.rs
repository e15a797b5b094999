//! The image: the binary and the C library that it is linked with, nothing else. One archive is both an OCI layout and what `docker load`
//! reads.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::{Sources, VERSION, sha256};
use crate::parts::Parts;
use crate::{Result, run};

/// What the loader and the binary need of Debian's packages, where they have it.
const LIBRARIES: [&str; 4] = ["ld-linux-x86-64.so.2", "libc.so.6", "libm.so.6", "libgcc_s.so.1"];
const LIBRARY_DIR: &str = "lib/x86_64-linux-gnu";

pub fn make(sources: &Sources, parts: &Parts, work: &Path, out: &Path) -> Result<()> {
    let (layout, files) = (work.join("image"), work.join("layer"));
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs)?;
    root_of(&files, sources.binary, &parts.root("image-base"))?;
    let unnamed = work.join("layer.tar");
    sources.tar(&files, ".", false, &unnamed)?;
    let layer = put(&blobs, &fs::read(&unnamed)?)?;
    let config = put(&blobs, config(&layer.digest).to_string().as_bytes())?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config.described("application/vnd.oci.image.config.v1+json"),
        "layers": [layer.described("application/vnd.oci.image.layer.v1.tar")],
    });
    let mut top = put(&blobs, manifest.to_string().as_bytes())?.described("application/vnd.oci.image.manifest.v1+json");
    top["annotations"] = json!({ "org.opencontainers.image.ref.name": VERSION });
    let index = json!({ "schemaVersion": 2, "manifests": [top] });
    fs::write(layout.join("index.json"), index.to_string())?;
    fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)?;
    // That of `docker save`, for every version of Docker.
    let saved = json!([{
        "Config": config.path(),
        "RepoTags": [format!("allostat:{VERSION}")],
        "Layers": [layer.path()],
    }]);
    fs::write(layout.join("manifest.json"), saved.to_string())?;
    sources.tar(&layout, ".", true, &out.join(format!("allostat-{VERSION}-image.tar.gz")))
}

fn root_of(files: &Path, binary: &Path, base: &Path) -> Result<()> {
    for dir in ["usr/bin", "lib64", LIBRARY_DIR, "tmp", "var/lib/allostat", "etc/ssl/certs"] {
        fs::create_dir_all(files.join(dir))?;
    }
    fs::copy(binary, files.join("usr/bin/allostat"))?;
    for library in LIBRARIES {
        let places = [base.join(LIBRARY_DIR), base.join("usr").join(LIBRARY_DIR)];
        let from = places.iter().map(|dir| dir.join(library)).find(|path| path.exists());
        let from = from.ok_or_else(|| format!("the packages have no {library}"))?;
        fs::copy(fs::canonicalize(from)?, files.join(LIBRARY_DIR).join(library))?;
    }
    // Where a program's header looks for its loader.
    fs::copy(files.join(LIBRARY_DIR).join(LIBRARIES[0]), files.join("lib64").join(LIBRARIES[0]))?;
    fs::write(files.join("etc/passwd"), "root:x:0:0:root:/:/sbin/nologin\n")?;
    run::output(Command::new("chmod").args(["-R", "u=rwX,go=rX", "--"]).arg(files))?;
    Ok(())
}

/// As `deploy/Dockerfile` has it: the agent measures its host, and starts nothing.
fn config(layer: &str) -> Value {
    json!({
        "architecture": "amd64",
        "os": "linux",
        "created": "2020-01-01T00:00:00Z",
        "config": {
            "Env": [
                "PATH=/usr/bin",
                "ALLOSTAT_DATA_DIR=/var/lib/allostat",
                "ALLOSTAT_DRIVERS=none",
            ],
            "Entrypoint": ["/usr/bin/allostat"],
            "Cmd": ["agent"],
            "ExposedPorts": { "9740/tcp": {} },
            "Labels": { "org.opencontainers.image.title": "allostat", "org.opencontainers.image.version": VERSION },
        },
        "rootfs": { "type": "layers", "diff_ids": [layer] },
        "history": [{ "created": "2020-01-01T00:00:00Z", "created_by": "cargo xtask package" }],
    })
}

#[derive(Debug)]
struct Blob {
    digest: String,
    size: usize,
}

impl Blob {
    fn described(&self, media_type: &str) -> Value {
        json!({ "mediaType": media_type, "digest": self.digest, "size": self.size })
    }
    fn path(&self) -> String {
        format!("blobs/{}", self.digest.replace(':', "/"))
    }
}

fn put(blobs: &Path, bytes: &[u8]) -> Result<Blob> {
    let unnamed: PathBuf = blobs.join("new");
    fs::write(&unnamed, bytes)?;
    let sum = sha256(&unnamed)?;
    fs::rename(&unnamed, blobs.join(&sum))?;
    Ok(Blob { digest: format!("sha256:{sum}"), size: bytes.len() })
}
