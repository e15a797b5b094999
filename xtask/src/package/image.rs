//! The image: the binary and the C library that it is linked with, nothing else. One archive is both an OCI layout and
//! what `docker load` reads.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::{PackageSources, VERSION, sha256};
use crate::{Result, run};

/// What the loader and the binary need of Debian's packages, where they have it.
const LIBRARIES: [&str; 4] = ["ld-linux-x86-64.so.2", "libc.so.6", "libm.so.6", "libgcc_s.so.1"];
const LIBRARY_DIR: &str = "lib/x86_64-linux-gnu";

/// `base`: where packages with the C library are unpacked. Returns the archive.
pub fn make(sources: &PackageSources, base: &Path, compress: bool, work: &Path, out: &Path) -> Result<PathBuf> {
    let (layout, files) = (work.join("image"), work.join("layer"));
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs)?;
    root_of(&files, sources.binary, base)?;
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
    let archive = out.join(format!("allostat-{VERSION}-image.tar{}", if compress { ".gz" } else { "" }));
    sources.tar(&layout, ".", compress, &archive)?;
    Ok(archive)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::package::testing;

    fn json(file: &Path) -> Value {
        serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
    }

    /// The blob that a descriptor names: it has the digest and the size that stand there.
    fn blob(layout: &Path, descriptor: &Value) -> PathBuf {
        let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
        let file = layout.join("blobs/sha256").join(digest);
        assert_eq!(sha256(&file).unwrap(), digest, "{descriptor}");
        assert_eq!(fs::metadata(&file).unwrap().len(), descriptor["size"].as_u64().unwrap(), "{descriptor}");
        file
    }

    #[test]
    fn image_is_an_oci_layout_of_the_binary_and_its_c_library_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (binary, base) = (testing::binary(dir.path()), dir.path().join("base"));
        fs::create_dir_all(base.join("usr").join(LIBRARY_DIR)).unwrap();
        for library in LIBRARIES {
            fs::write(base.join("usr").join(LIBRARY_DIR).join(library), library).unwrap();
        }
        let (work, out) = (dir.path().join("work"), dir.path().join("out"));
        fs::create_dir_all(&work).unwrap();
        fs::create_dir_all(&out).unwrap();
        let root = crate::root();
        let archive = make(&PackageSources::new(&root, &binary), &base, true, &work, &out).unwrap();

        let layout = dir.path().join("layout");
        fs::create_dir(&layout).unwrap();
        assert_eq!(archive, out.join(format!("allostat-{VERSION}-image.tar.gz")));
        run::output(Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(&layout)).unwrap();
        assert_eq!(json(&layout.join("oci-layout"))["imageLayoutVersion"], "1.0.0");
        let index = json(&layout.join("index.json"));
        let manifest = json(&blob(&layout, &index["manifests"][0]));
        let config = json(&blob(&layout, &manifest["config"]));
        let layer = blob(&layout, &manifest["layers"][0]);
        assert_eq!(
            (index["manifests"].as_array().unwrap().len(), manifest["layers"].as_array().unwrap().len()),
            (1, 1)
        );
        assert_eq!(config["rootfs"]["diff_ids"], json!([manifest["layers"][0]["digest"]]), "it is not compressed");
        assert_eq!(
            (&config["config"]["Entrypoint"], &config["config"]["Cmd"]),
            (&json!(["/usr/bin/allostat"]), &json!(["agent"]))
        );
        let blobs = fs::read_dir(layout.join("blobs/sha256")).unwrap().count();
        assert_eq!(blobs, 3, "manifest, configuration and layer");
        // What `docker load` reads names the same blobs.
        let saved = json(&layout.join("manifest.json"));
        assert_eq!(saved[0]["RepoTags"], json!([format!("allostat:{VERSION}")]));
        for path in [&saved[0]["Config"], &saved[0]["Layers"][0]] {
            assert!(layout.join(path.as_str().unwrap()).is_file(), "{path}");
        }

        let entries = testing::entries(&layer);
        let found: Vec<&str> = entries.iter().filter(|entry| entry.mode.starts_with('-')).map(|e| &*e.path).collect();
        let mut expected = vec!["etc/passwd", "lib64/ld-linux-x86-64.so.2", "usr/bin/allostat"];
        let libraries = LIBRARIES.map(|library| format!("{LIBRARY_DIR}/{library}"));
        expected.extend(libraries.iter().map(String::as_str));
        expected.sort_unstable();
        assert_eq!(found, expected);
        for entry in &entries {
            assert_eq!(entry.owner, "0/0", "{entry:?}");
            let mode = match entry.path.as_str() {
                "usr/bin/allostat" => "-rwxr-xr-x",
                _ if entry.mode.starts_with('d') => "drwxr-xr-x",
                _ => "-rw-r--r--",
            };
            assert_eq!(entry.mode, mode, "{entry:?}");
        }
        assert!(entries.iter().any(|entry| entry.path == "var/lib/allostat"), "its data has a place");
    }
}
