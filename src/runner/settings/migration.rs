//! From which agents data is fetched, and what that may take.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::host::http::Address;
use crate::model::migration::peer_name;

/// Settings of migrations from other agents. Sizes are bytes; 0: no limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrationConfig {
    pub peers: Vec<MigrationPeer>,
    pub tokens: Vec<PeerToken>,
    /// The authorities of the peers' certificates. `None`: those of the system.
    pub ca_file: Option<PathBuf>,
    /// The certificate of this agent, and its key.
    pub cert_file: Option<PathBuf>,
    pub key_file: Option<PathBuf>,
    /// From the submission of the job to the end of its migration.
    pub deadline: Duration,
    /// Of a connection on which nothing comes.
    pub idle_timeout: Duration,
    pub max_size: u64,
    pub max_entries: u64,
    /// What stays free of the data directory's file system.
    pub free_space_reserve: u64,
}

impl Default for MigrationConfig {
    fn default() -> MigrationConfig {
        MigrationConfig {
            peers: Vec::new(),
            tokens: Vec::new(),
            ca_file: None,
            cert_file: None,
            key_file: None,
            deadline: Duration::from_secs(24 * 3600),
            idle_timeout: Duration::from_secs(60),
            max_size: 100 << 30,
            max_entries: 1_000_000,
            free_space_reserve: 256 << 20,
        }
    }
}

impl MigrationConfig {
    pub fn peer(&self, name: &str) -> Option<&MigrationPeer> {
        self.peers.iter().find(|peer| peer.name == name)
    }
    pub fn token_file(&self, peer: &str) -> Option<&PathBuf> {
        self.tokens.iter().find(|token| token.peer == peer).map(|token| &token.file)
    }

    /// What is valid alone and contradicts the rest: the settings that it is about, and a sentence.
    pub fn clashes(&self) -> Vec<(Vec<&'static str>, String)> {
        let mut found = Vec::new();
        for (at, peer) in self.peers.iter().enumerate() {
            if self.peers.iter().take(at).any(|before| before.name == peer.name) {
                found.push((vec!["migrate.peers"], format!("migrate.peers has two peers named {:?}", peer.name)));
            }
        }
        for token in &self.tokens {
            if self.peer(&token.peer).is_none() {
                let message = format!("migrate.tokens has a token for {:?}, which is not in migrate.peers", token.peer);
                found.push((vec!["migrate.tokens", "migrate.peers"], message));
            }
        }
        if self.cert_file.is_some() != self.key_file.is_some() {
            let message = "migrate.cert_file and migrate.key_file are a certificate and its key: set both".to_owned();
            found.push((vec!["migrate.cert_file", "migrate.key_file"], message));
        }
        found
    }
}

/// `host-2=https://host-2:9740`: another agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrationPeer {
    pub name: String,
    pub address: Address,
}

impl MigrationPeer {
    /// Errors: not of this form, in a sentence; data and tokens would cross a network in clear text.
    pub fn parse(text: &str) -> Result<MigrationPeer, String> {
        let (name, address) =
            text.split_once('=').ok_or_else(|| format!("{text:?} is no peer: write NAME=https://HOST:PORT"))?;
        peer_name(name)?;
        let address: Address = address.parse().map_err(|e| format!("peer {name:?}: {e}"))?;
        match &address {
            Address::Tcp(host) if !is_loopback(host) => {
                Err(format!("peer {name:?}: http:// is for agents on this host alone; write https://{host}"))
            }
            Address::Tcp(_) | Address::Unix(_) | Address::Tls(..) => {
                Ok(MigrationPeer { name: name.to_owned(), address })
            }
        }
    }
}

impl fmt::Display for MigrationPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.address)
    }
}

fn is_loopback(host: &str) -> bool {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    address.map_or(name == "localhost", |address| address.is_loopback())
}

/// `host-2=/etc/allostat/host-2.token`: the file of the token for a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerToken {
    pub peer: String,
    pub file: PathBuf,
}

impl PeerToken {
    /// Errors: not of this form, in a sentence.
    pub fn parse(text: &str) -> Result<PeerToken, String> {
        let (peer, file) = text.split_once('=').ok_or_else(|| format!("{text:?} is no token: write PEER=/PATH"))?;
        peer_name(peer)?;
        let file = PathBuf::from(file);
        if !file.is_absolute() {
            return Err(format!("the token file of peer {peer:?} is no absolute path: {}", file.display()));
        }
        Ok(PeerToken { peer: peer.to_owned(), file })
    }
}

impl fmt::Display for PeerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.peer, self.file.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_is_for_peers_on_this_host_alone() {
        for good in ["a=https://h:1", "a=http://127.0.0.1:1", "a=http://[::1]:1", "a=http://localhost:1", "a=unix:/s"] {
            assert_eq!(MigrationPeer::parse(good).unwrap().to_string(), good);
        }
        for odd in ["a=http://h:1", "a=http://10.0.0.1:1", "a=h", "https://h:1", "a/b=https://h:1", "=https://h:1"] {
            assert!(MigrationPeer::parse(odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn tokens_without_a_peer_and_halves_of_a_pair_are_clashes() {
        let peer = MigrationPeer::parse("a=https://h:1").unwrap();
        let tokens = ["a=/a", "b=/b"].map(|text| PeerToken::parse(text).unwrap()).to_vec();
        let config = MigrationConfig {
            peers: vec![peer.clone(), peer],
            tokens,
            key_file: Some("/k".into()),
            ..MigrationConfig::default()
        };
        let about: Vec<_> = config.clashes().into_iter().map(|(settings, _)| settings[0]).collect();
        assert_eq!(about, ["migrate.peers", "migrate.tokens", "migrate.cert_file"]);
        assert!(MigrationConfig::default().clashes().is_empty());
        assert!(PeerToken::parse("a=relative").is_err() && PeerToken::parse("/only").is_err());
    }
}
