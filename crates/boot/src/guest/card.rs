//! A process's card: what it publishes before it has an address.
//!
//! | bytes | field |
//! | --- | --- |
//! | 4 | `PTLG` |
//! | 4, 4 | versions of these cards and of the packets |
//! | 1, n | the Portolan release, as text |
//! | 8 | host identity |
//! | 4 | process id |
//! | 16 | random: names the job |
//! | 1, 1, 1, 1, 1 | security, suite, link, congestion, whether there is a job secret file |
//! | 1, 17 n | addresses: IPv6 (IPv4 mapped) and length of the network's prefix |
//!
//! Sent as hexadecimal digits. Nothing of it is secret.

use std::net::IpAddr;

use portolan_sys::net::Subnet;

use crate::{Congestion, LinkChoice, Security, Suite, Versions};

const MAGIC: &[u8; 4] = b"PTLG";
/// Most addresses of a card.
pub(super) const ADDRESSES_MAX: usize = 16;
/// Most bytes of a release's name.
const RELEASE_MAX: usize = 32;

/// Settings that must be equal in all processes, or no two could communicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choices {
    pub security: Security,
    pub suite: Suite,
    pub link: LinkChoice,
    pub congestion: Congestion,
    pub has_secret: bool,
}

/// A process of the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Card {
    pub versions: Versions,
    pub host: u64,
    pub pid: u32,
    pub random: [u8; 16],
    pub choices: Choices,
    pub addresses: Vec<Subnet>,
}

impl Card {
    /// Bytes behind the versions, with one address.
    #[cfg(feature = "properties")]
    pub const BODY_BYTES: usize = 8 + 4 + 16 + 5 + 1 + 17;

    /// Keeps P3.12.
    pub fn encode(&self) -> String {
        let release = self.versions.portolan.as_bytes();
        let release = &release[..release.len().min(RELEASE_MAX)];
        let mut bytes = MAGIC.to_vec();
        bytes.extend(self.versions.boot.to_le_bytes());
        bytes.extend(self.versions.wire.to_le_bytes());
        bytes.push(release.len() as u8);
        bytes.extend(release);
        bytes.extend(self.host.to_le_bytes());
        bytes.extend(self.pid.to_le_bytes());
        bytes.extend(self.random);
        let c = self.choices;
        bytes.extend([
            c.security as u8,
            c.suite as u8,
            c.link as u8,
            c.congestion as u8,
            c.has_secret.into(),
        ]);
        let addresses = &self.addresses[..self.addresses.len().min(ADDRESSES_MAX)];
        bytes.push(addresses.len() as u8);
        for own in addresses {
            let ip = match own.ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            bytes.extend(ip.octets());
            bytes.push(own.prefix);
        }
        hex(&bytes)
    }

    /// Decodes a card. For one of another version only the versions need to be
    /// valid: the rest is then copied from `like` (P3.12).
    pub fn decode(text: &str, like: &Self) -> Option<Self> {
        let bytes = unhex(text)?;
        let mut rest = bytes.strip_prefix(MAGIC)?;
        let boot = u32::from_le_bytes(*take(&mut rest)?);
        let wire = u32::from_le_bytes(*take(&mut rest)?);
        let [length] = *take(&mut rest)?;
        if usize::from(length) > RELEASE_MAX {
            return None;
        }
        let release = rest.split_off(..usize::from(length))?;
        let versions = Versions {
            portolan: String::from_utf8(release.to_vec()).ok()?,
            boot,
            wire,
        };
        if versions != like.versions {
            return Some(Self {
                versions,
                ..like.clone()
            });
        }
        let host = u64::from_le_bytes(*take(&mut rest)?);
        let pid = u32::from_le_bytes(*take(&mut rest)?);
        let random = *take(&mut rest)?;
        let [security, suite, link, congestion, has_secret] = *take(&mut rest)?;
        let choices = Choices {
            security: *[Security::Encrypt, Security::None].get(usize::from(security))?,
            suite: *Suite::ALL.get(usize::from(suite))?,
            link: *[LinkChoice::Auto, LinkChoice::Shm, LinkChoice::Udp].get(usize::from(link))?,
            congestion: *[Congestion::Auto, Congestion::Lan, Congestion::Shared]
                .get(usize::from(congestion))?,
            has_secret: *[false, true].get(usize::from(has_secret))?,
        };
        let [count] = *take(&mut rest)?;
        if usize::from(count) > ADDRESSES_MAX {
            return None;
        }
        let mut addresses = Vec::new();
        for _ in 0..count {
            let ip: [u8; 16] = *take(&mut rest)?;
            let [prefix] = *take(&mut rest)?;
            addresses.push(Subnet::new(IpAddr::from(ip).to_canonical(), prefix)?);
        }
        rest.is_empty().then_some(Self {
            versions,
            host,
            pid,
            random,
            choices,
            addresses,
        })
    }
}

fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (first, others) = rest.split_first_chunk()?;
    *rest = others;
    Some(first)
}

/// Encodes bytes as digits that every PMI server takes as a value.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Decodes what [`hex`] returned; lower-case digits only.
pub(super) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |letter: u8| match letter {
        b'0'..=b'9' => Some(letter - b'0'),
        b'a'..=b'f' => Some(letter - b'a' + 10),
        _ => None,
    };
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else {
        return None;
    };
    let byte = |[high, low]: &[u8; 2]| Some(digit(*high)? << 4 | digit(*low)?);
    pairs.iter().map(byte).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::host::fnv;

    /// Returns a card with the versions of this build.
    pub fn card(host: u64, addresses: &[(&str, u8)]) -> Card {
        let own = |(ip, prefix): &(&str, u8)| Subnet::new(ip.parse().unwrap(), *prefix).unwrap();
        Card {
            versions: Versions::ours(),
            host,
            pid: 4711,
            random: [7; 16],
            choices: Choices {
                security: Security::Encrypt,
                suite: Suite::ChaCha20Poly1305,
                link: LinkChoice::Udp,
                congestion: Congestion::Shared,
                has_secret: true,
            },
            addresses: addresses.iter().map(own).collect(),
        }
    }

    /// Checks P3.12.
    #[test]
    fn a_card_travels() {
        let ours = card(1, &[]);
        let full = [("10.1.2.3", 24), ("fd00::7", 64)].repeat(ADDRESSES_MAX / 2);
        for theirs in [
            card(2, &full),
            card(2, &[]),
            card(u64::MAX, &[("fd00::7", 128)]),
        ] {
            let text = theirs.encode();
            // PMI limits values to 1,024 bytes.
            assert!(text.len() < 1000 && text.bytes().all(|b| b.is_ascii_alphanumeric()));
            assert_eq!(Card::decode(&text, &ours), Some(theirs));
        }
    }

    /// Returns a value of `docs/protocol-vectors.txt`: its text, if it has a
    /// line of its own, or its bytes, which are indented.
    fn vector(name: &str) -> String {
        let file = include_str!("../../../../docs/protocol-vectors.txt");
        let named = file.lines().skip_while(|line| {
            let (it, _) = line.split_once(" = ").unwrap_or((line, ""));
            it != name
        });
        let mut lines = named.peekable();
        let first = lines.next().unwrap_or_else(|| panic!("no {name}"));
        if let Some((_, value)) = first.split_once(" = ") {
            return value.to_owned();
        }
        lines.map_while(|line| line.strip_prefix("  ")).collect()
    }

    /// Checks P3.12.
    #[test]
    fn the_checked_in_vectors_are_what_is_encoded() {
        let addresses = vector("card-addresses");
        let addresses = addresses
            .split(", ")
            .map(|text| text.split_once('/').unwrap());
        let addresses: Vec<_> = addresses.map(|(ip, n)| (ip, n.parse().unwrap())).collect();
        let host = vector("card-host");
        let host = u64::from_str_radix(host.trim_start_matches("0x"), 16).unwrap();
        let mut theirs = card(host, &addresses);
        theirs.versions.portolan = vector("card-release");
        theirs.pid = vector("card-process").parse().unwrap();
        let c = theirs.choices;
        let chosen = serde_json::json!([c.security, c.suite, c.link, c.congestion]);
        let named = [
            "card-security",
            "card-suite",
            "card-link",
            "card-congestion",
        ]
        .map(vector);
        assert_eq!(chosen, serde_json::json!(named));
        assert_eq!(vector("card-file"), u8::from(c.has_secret).to_string());
        assert_eq!(vector("card-random"), hex(&theirs.random));
        assert_eq!(vector("card"), theirs.encode());
        let ours = card(1, &[]);
        let inode: u64 = vector("host-inode").parse().unwrap();
        let boot_id = vector("host-boot-id");
        let host = fnv(&[boot_id.as_bytes(), &inode.to_le_bytes()]);
        assert_eq!(vector("host"), hex(&host.to_le_bytes()));
        let random = ["job-random-0", "job-random-1"].map(|name| unhex(&vector(name)).unwrap());
        let job = fnv(&random.each_ref().map(Vec::as_slice));
        assert_eq!(vector("job-id"), hex(&job.to_le_bytes()));
        // The specification names this version.
        let text = include_str!("../../../../docs/protocol.md");
        let row = format!("| 4 | version of the card, {} |", ours.versions.boot);
        assert!(text.contains(&row), "docs/protocol.md has no {row:?}");
    }

    #[test]
    fn a_card_that_is_cut_changed_or_longer_is_none() {
        let ours = card(1, &[]);
        let text = card(2, &[("10.1.2.3", 24)]).encode();
        for end in 0..text.len() {
            assert_eq!(Card::decode(&text[..end], &ours), None, "{end}");
        }
        assert_eq!(Card::decode(&format!("{text}00"), &ours), None);
        assert_eq!(Card::decode(&text.to_uppercase(), &ours), None);
        assert_eq!(Card::decode(&text.replacen("50", "51", 1), &ours), None);
        // A choice that this version does not have; a prefix beyond the address.
        let bytes = unhex(&text).unwrap();
        for (from_end, value) in [(18 + 5, 9), (18 + 3, 9), (18 + 1, 2), (1, 129)] {
            let mut bytes = bytes.clone();
            let at = bytes.len() - from_end;
            bytes[at] = value;
            assert_eq!(Card::decode(&hex(&bytes), &ours), None, "{from_end}");
        }
    }

    #[test]
    fn the_versions_of_another_release_are_read() {
        let ours = card(1, &[]);
        let mut theirs = card(2, &[]);
        theirs.versions.portolan = "9.8.7".to_owned();
        theirs.versions.boot = 99;
        let text = theirs.encode() + "0123";
        let read = Card::decode(&text, &ours).unwrap();
        assert_eq!(read.versions, theirs.versions);
        // The longest name of a card, and one byte more.
        theirs.versions.portolan = "9".repeat(RELEASE_MAX);
        let text = theirs.encode();
        assert_eq!(
            Card::decode(&text, &ours).unwrap().versions,
            theirs.versions
        );
        let (head, name) = text.split_at(2 * (4 + 4 + 4));
        let longer = format!("{head}{:02x}39{}", RELEASE_MAX + 1, &name[2..]);
        assert_eq!(Card::decode(&longer, &ours), None);
    }
}
