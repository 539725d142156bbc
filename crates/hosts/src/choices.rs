//! How a job may be set up: what the command line of `run` and of `bench` have
//! in common.

use clap::{Args, ValueEnum};
use portolan_boot::launch::JobSpec;

/// How the ranks of a job reach each other.
#[derive(Args, Clone, Default)]
pub struct Network {
    /// Link (transport) between ranks
    #[arg(long, value_enum, default_value_t)]
    pub link: Link,
    /// Networks for messages, at most 4: names of interfaces, or networks, as in
    /// eth0,10.2.0.0/16, or `all`; the first one is used to connect
    #[arg(long, value_name = "NAME|CIDR,...")]
    pub interface: Option<String>,
    /// Encrypt and authenticate packets on the network
    #[arg(long, value_enum, default_value_t)]
    pub security: Security,
    /// Cipher suite: the job ends if a host cannot; without this option aegis-128l, or
    /// chacha20-poly1305 where a host has no AES instructions
    #[arg(long, value_enum)]
    pub suite: Option<Suite>,
    /// Congestion control: how to share the network
    #[arg(long, value_enum, default_value_t)]
    pub congestion: Congestion,
}

impl Network {
    /// A job with so many ranks on each host.
    pub fn spec(&self, ranks: Vec<u32>) -> JobSpec {
        let mut spec = JobSpec::new(ranks);
        spec.link = self.link.into();
        spec.security = self.security.into();
        spec.congestion = self.congestion.into();
        spec.suite = self.suite.map(Into::into);
        if let Some(networks) = &self.interface {
            spec.settings
                .insert("interface".to_owned(), networks.clone());
        }
        spec
    }

    /// The same as settings of endpoints that nobody's job has; `shm`: they are on one host.
    pub fn standalone_settings(&self, shm: bool) -> Vec<(String, String)> {
        let link = match self.link {
            // Within a host it is found without being named.
            _ if shm => Link::Auto,
            link => link,
        };
        let mut settings = vec![
            ("link".to_owned(), value_name(&link)),
            ("security".to_owned(), value_name(&self.security)),
            ("congestion".to_owned(), value_name(&self.congestion)),
        ];
        settings.extend(self.suite.map(|it| ("suite".to_owned(), value_name(&it))));
        let interface = self.interface.clone();
        settings.extend(interface.map(|it| ("interface".to_owned(), it)));
        settings
    }
}

/// A number of bytes as people write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub usize);

impl std::str::FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (digits, shift) = match text.char_indices().last() {
            Some((at, 'K' | 'k')) => (&text[..at], 10),
            Some((at, 'M' | 'm')) => (&text[..at], 20),
            Some((at, 'G' | 'g')) => (&text[..at], 30),
            _ => (text, 0),
        };
        let number = digits.parse::<usize>().ok();
        let bytes = number.and_then(|n| n.checked_mul(1 << shift));
        bytes.map(Self).ok_or_else(|| {
            "give a number of bytes, K, M or G behind it for 1,024, its square or its cube: 4096, \
             64K, 1M, 3G"
                .to_owned()
        })
    }
}

/// Reads [`Bytes`], for options that keep the number alone.
pub fn bytes(text: &str) -> std::result::Result<usize, String> {
    text.parse().map(|Bytes(number)| number)
}

/// Which link ranks use.
#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Link {
    /// Shared memory within a host; between hosts xdp if possible, else udp (benches: udp)
    #[default]
    Auto,
    /// Shared memory only
    Shm,
    /// UDP only
    Udp,
    /// UDP packets that bypass the kernel: every rank needs a host port (an AF_XDP queue)
    Xdp,
}

/// Whether packets are sealed.
#[derive(Clone, Copy, Default, ValueEnum)]
pub enum Security {
    /// Encrypted and authenticated
    #[default]
    Encrypt,
    /// Only a checksum
    None,
}

/// How packets are sealed.
#[derive(Clone, Copy, ValueEnum)]
pub enum Suite {
    /// AEGIS-128L
    #[value(name = "aegis-128l")]
    Aegis128L,
    /// AES-128-GCM
    #[value(name = "aes-128-gcm")]
    Aes128Gcm,
    /// ChaCha20-Poly1305
    #[value(name = "chacha20-poly1305")]
    ChaCha20Poly1305,
}

/// How the job shares the network.
#[derive(Clone, Copy, Default, ValueEnum)]
pub enum Congestion {
    /// lan on a directly connected subnet, else shared
    #[default]
    Auto,
    /// Based on queueing delay
    Lan,
    /// Fair to TCP
    Shared,
}

impl From<Link> for portolan_boot::LinkChoice {
    fn from(link: Link) -> Self {
        match link {
            Link::Auto => Self::Auto,
            Link::Shm => Self::Shm,
            Link::Udp => Self::Udp,
            Link::Xdp => Self::Xdp,
        }
    }
}

impl From<Security> for portolan_boot::Security {
    fn from(security: Security) -> Self {
        match security {
            Security::Encrypt => Self::Encrypt,
            Security::None => Self::None,
        }
    }
}

impl From<Suite> for portolan_boot::Suite {
    fn from(suite: Suite) -> Self {
        match suite {
            Suite::Aegis128L => Self::Aegis128L,
            Suite::Aes128Gcm => Self::Aes128Gcm,
            Suite::ChaCha20Poly1305 => Self::ChaCha20Poly1305,
        }
    }
}

impl From<Congestion> for portolan_boot::Congestion {
    fn from(congestion: Congestion) -> Self {
        match congestion {
            Congestion::Auto => Self::Auto,
            Congestion::Lan => Self::Lan,
            Congestion::Shared => Self::Shared,
        }
    }
}

/// The name of a choice on the command line.
pub fn value_name(value: &impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |it| it.get_name().to_owned())
}
