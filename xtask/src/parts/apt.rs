//! A private apt: it reads this machine's mirror, proxies and keys, and touches nothing of the system.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Result, run};

/// Where packages come from, whatever Debian this machine has: parts bring all their libraries with them.
const RELEASE: &str = "bookworm";
const BACKPORTS: &str = "bookworm-backports";
/// For newer programs, and asked as well where the first two do not have everything any more.
pub const NEXT_RELEASE: &str = "trixie";
/// For what no release has yet.
pub const LATER_RELEASE: &str = "forky";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

#[derive(Debug)]
pub struct Apt {
    config: PathBuf,
    home: PathBuf,
    /// Asked for everything but what no release has yet.
    suites: &'static [&'static str],
}

/// Which of two versions is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionChoice {
    /// The release's own.
    Release,
    /// The newer one where backports have it: QEMU 7.2 of the release itself crashes now and then under newer kernels.
    Backports,
}

/// Why this machine cannot get parts, if so.
pub fn this_machine() -> Result<()> {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    if !release.lines().any(|line| line == "ID=debian") {
        return Err("this is not Debian".into());
    }
    if std::env::consts::ARCH != "x86_64" {
        return Err("the packages are those of amd64".into());
    }
    for program in ["apt-get", "dpkg-deb"] {
        Command::new(program).arg("--version").output().map_err(|e| format!("cannot start {program}: {e}"))?;
    }
    Ok(())
}

impl Apt {
    /// Writes the configuration and reads the package lists.
    pub fn prepare(parts: &Path) -> Result<Apt> {
        this_machine()?;
        let home = parts.join("apt");
        for dir in ["state/lists/partial", "cache/archives/partial", "conf.d"] {
            fs::create_dir_all(home.join(dir))?;
        }
        fs::write(home.join("status"), "")?;
        let mut apt = Apt { config: home.join("apt.conf"), home, suites: &[RELEASE, BACKPORTS] };
        let system = run::output(Command::new("apt-config").arg("dump"))?;
        // A proxy's address may hold a password.
        let mut file = fs::OpenOptions::new();
        let mut file = file.write(true).create(true).truncate(true).mode(0o600).open(&apt.config)?;
        std::io::Write::write_all(&mut file, configuration(&apt.home, &system).as_bytes())?;
        apt.update(apt.suites)?;
        if apt.kernel("6.12").is_err() {
            apt.suites = &[RELEASE, BACKPORTS, NEXT_RELEASE];
            apt.update(apt.suites)?;
        }
        Ok(apt)
    }

    fn update(&self, suites: &[&str]) -> Result<()> {
        fs::write(self.home.join("sources.list"), sources(suites, &mirror()?, Path::new(KEYRING).exists()))?;
        // One suite that is gone must not cost the others: what is missing then shows at the part that needs it.
        if let Err(error) = run::output(self.apt_get().arg("update")) {
            if self.known(RELEASE).is_empty() && self.known(NEXT_RELEASE).is_empty() {
                return Err(error);
            }
            println!("  {error}");
        }
        Ok(())
    }

    /// Names of the package lists that are there.
    fn known(&self, suite: &str) -> Vec<String> {
        let lists = fs::read_dir(self.home.join("state/lists")).into_iter().flatten().flatten();
        let names = lists.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.contains(&format!("_{suite}_")) && name.contains("_Packages")).collect()
    }

    /// The package of the newest cloud kernel of a series.
    pub fn kernel(&self, series: &str) -> Result<String> {
        let printed = run::output(self.apt("apt-cache").args(["show", "linux-image-cloud-amd64"]))?;
        kernel_package(&printed, series).ok_or_else(|| format!("no kernel {series} in the package lists").into())
    }

    /// Downloads `names` alone.
    pub fn download(&self, names: &[&str], to: &Path) -> Result<Vec<PathBuf>> {
        fs::create_dir_all(to)?;
        run::output(self.apt_get().arg("download").args(names).current_dir(to))?;
        debs(to)
    }

    /// Downloads `names` alone, as a later release has them.
    pub fn download_of(&self, release: &str, names: &[&str], to: &Path) -> Result<Vec<PathBuf>> {
        self.update(&[RELEASE, BACKPORTS, release])?;
        let names: Vec<String> = names.iter().map(|name| format!("{name}/{release}")).collect();
        let got = self.download(&names.iter().map(String::as_str).collect::<Vec<_>>(), to);
        // Or the next part would be of there too, where that has a newer one.
        self.update(self.suites)?;
        got
    }

    /// Downloads `names` and all that they depend on.
    pub fn download_closure(&self, names: &[&str], from: VersionChoice, to: &Path) -> Result<Vec<PathBuf>> {
        fs::create_dir_all(to.join("partial"))?;
        let from = if from == VersionChoice::Release || self.known(BACKPORTS).is_empty() { RELEASE } else { BACKPORTS };
        let mut archives = std::ffi::OsString::from("Dir::Cache::archives=");
        archives.push(to);
        let mut command = self.apt_get();
        command.args(["-y", "--download-only", "--no-install-recommends", "-t", from, "-o"]).arg(archives);
        run::output(command.arg("install").args(names))?;
        debs(to)
    }

    fn apt_get(&self) -> Command {
        let mut command = self.apt("apt-get");
        command.arg("-q");
        command
    }
    fn apt(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("APT_CONFIG", &self.config).env("LC_ALL", "C.UTF-8").env("DEBIAN_FRONTEND", "noninteractive");
        command
    }
}

fn debs(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut debs = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            debs.push(path);
        }
    }
    debs.sort();
    if debs.is_empty() { Err("apt-get downloaded nothing".into()) } else { Ok(debs) }
}

/// Everything private but the way to the network: of the system's configuration only `Acquire::http` and the like.
/// Its hooks are left out: they would clean the system's own cache.
fn configuration(home: &Path, system: &str) -> String {
    let home = home.display();
    let mut text = format!(
        "Dir::Etc::main \"/dev/null\";\n\
         Dir::Etc::parts \"{home}/conf.d\";\n\
         Dir::Etc::sourcelist \"{home}/sources.list\";\n\
         Dir::Etc::sourceparts \"/dev/null\";\n\
         Dir::Etc::preferences \"/dev/null\";\n\
         Dir::Etc::preferencesparts \"/dev/null\";\n\
         Dir::State \"{home}/state\";\n\
         Dir::State::lists \"{home}/state/lists\";\n\
         Dir::State::status \"{home}/status\";\n\
         Dir::State::extended_states \"{home}/state/extended_states\";\n\
         Dir::Cache \"{home}/cache\";\n\
         Dir::Log \"{home}\";\n\
         APT::Architecture \"amd64\";\n\
         APT::Architectures {{ \"amd64\"; }};\n\
         APT::Sandbox::User \"\";\n\
         APT::Default-Release \"{RELEASE}\";\n\
         Acquire::Languages \"none\";\n\
         Acquire::Retries \"3\";\n\
         Debug::NoLocking \"true\";\n"
    );
    let network = ["Acquire::http::", "Acquire::https::", "Acquire::ftp::", "Acquire::Force", "Acquire::tor::"];
    for line in system.lines().filter(|line| network.iter().any(|start| line.starts_with(start))) {
        let _ = writeln!(text, "{line}");
    }
    text
}

fn sources(suites: &[&str], mirror: &str, keyring: bool) -> String {
    let signed = if keyring { format!(" signed-by={KEYRING}") } else { String::new() };
    // Lists of a release to come are valid for a week, which a mirror that is asked for less often does not keep to;
    // they are signed.
    let valid = |suite: &str| if suite == LATER_RELEASE { " check-valid-until=no" } else { "" };
    let line = |suite: &&str| format!("deb [arch=amd64{signed}{}] {mirror} {suite} main\n", valid(suite));
    suites.iter().map(line).collect()
}

/// The mirror that this machine uses for Debian itself.
fn mirror() -> Result<String> {
    let mut texts = vec![fs::read_to_string("/etc/apt/sources.list").unwrap_or_default()];
    for entry in fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten() {
        let is_needed = entry.path().extension().is_some_and(|e| e == "list" || e == "sources");
        texts.extend(is_needed.then(|| fs::read_to_string(entry.path()).unwrap_or_default()));
    }
    texts
        .iter()
        .find_map(|text| find_mirror(text))
        .ok_or_else(|| "no source of Debian packages is configured in /etc/apt".into())
}

/// The first address of an archive that ends in `/debian`, in either format of sources.
fn find_mirror(text: &str) -> Option<String> {
    let lines = text.lines().map(str::trim).filter(|line| line.starts_with("deb ") || line.starts_with("URIs:"));
    let mut words = lines.flat_map(str::split_whitespace);
    words
        .find(|word| {
            let scheme = ["http://", "https://", "file:/", "copy:/"].iter().any(|s| word.starts_with(s));
            scheme && word.trim_end_matches('/').ends_with("/debian")
        })
        .map(|word| word.trim_end_matches('/').to_owned())
}

/// From `apt-cache show linux-image-cloud-amd64`, newest first: the package that a version of that series depends on.
fn kernel_package(shown: &str, series: &str) -> Option<String> {
    let expected = format!("linux-image-{series}.");
    let depends = shown.lines().filter_map(|line| line.strip_prefix("Depends: "));
    depends.flat_map(|line| line.split([',', ' '])).find(|word| word.starts_with(&expected)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_found_in_both_formats_and_other_peoples_archives_are_not_it() {
        let deb822 = "Types: deb\n# a comment\nURIs: http://mirror.example/debian/\nSuites: bookworm\n";
        assert_eq!(find_mirror(deb822).as_deref(), Some("http://mirror.example/debian"));
        let lines = "# deb http://old.example/debian x main\ndeb [arch=amd64] https://apt.example/other stable main\n\
                     deb https://deb.example/debian bookworm main\n";
        assert_eq!(find_mirror(lines).as_deref(), Some("https://deb.example/debian"));
        assert_eq!(find_mirror("deb https://apt.example/other stable main\n"), None);
    }

    #[test]
    fn the_kernel_of_a_series_is_found_by_its_dot() {
        let shown = "Version: 6.12.9-1\nDepends: linux-image-6.12.9+deb12-cloud-amd64 (= 6.12.9-1)\n\n\
                     Version: 6.1.17-1\nDepends: linux-image-6.1.0-50-cloud-amd64 (= 6.1.17-1)\n";
        assert_eq!(kernel_package(shown, "6.1").as_deref(), Some("linux-image-6.1.0-50-cloud-amd64"));
        assert_eq!(kernel_package(shown, "6.12").as_deref(), Some("linux-image-6.12.9+deb12-cloud-amd64"));
        assert_eq!(kernel_package(shown, "6.6"), None);
    }

    #[test]
    fn system_configuration_gives_only_network_settings() {
        let system = "APT::Update::Post-Invoke:: \"rm -f /var/cache/apt/archives/*.deb\";\n\
                      Acquire::http::Proxy \"http://proxy.example:3128\";\nDir::Etc::parts \"apt.conf.d\";\n";
        let text = configuration(Path::new("/w/target/parts/apt"), system);
        assert!(text.contains("proxy.example"));
        assert!(!text.contains("Post-Invoke") && !text.contains("apt.conf.d"), "{text}");
    }

    #[test]
    fn sources_name_each_suite() {
        let text = sources(&["a", "b"], "http://m.example/debian", false);
        assert_eq!(
            text,
            "deb [arch=amd64] http://m.example/debian a main\ndeb [arch=amd64] http://m.example/debian b main\n"
        );
    }
}
