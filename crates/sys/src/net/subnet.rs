//! IP addresses and the networks that they are in.

use std::net::IpAddr;
use std::str::FromStr;

/// An address and how long the prefix is that names its network, bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subnet {
    /// The address.
    pub ip: IpAddr,
    /// At most 32 for IPv4, 128 for IPv6.
    pub prefix: u8,
}

impl Subnet {
    /// None if the prefix is longer than the address.
    #[must_use]
    pub fn new(ip: IpAddr, prefix: u8) -> Option<Self> {
        (prefix <= whole(ip)).then_some(Self { ip, prefix })
    }

    /// Whether an address is of the same network.
    #[must_use]
    pub fn contains(&self, ip: IpAddr) -> bool {
        let (own, other, bits) = match (self.ip, ip) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                (u128::from(own.to_bits()), u128::from(other.to_bits()), 32)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => (own.to_bits(), other.to_bits(), 128),
            _ => return false,
        };
        let rest = bits - u32::from(self.prefix);
        (own ^ other).checked_shr(rest).unwrap_or(0) == 0
    }
}

/// The text is no address and no network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotASubnet;

impl FromStr for Subnet {
    type Err = NotASubnet;

    /// A network or a single address as settings name them: `10.1.0.0/16`,
    /// `10.1.2.3`.
    fn from_str(text: &str) -> Result<Self, NotASubnet> {
        let (ip, prefix) = match text.split_once('/') {
            Some((ip, prefix)) => (ip, Some(prefix.parse().map_err(|_| NotASubnet)?)),
            None => (text, None),
        };
        let ip = ip.parse().map_err(|_| NotASubnet)?;
        Self::new(ip, prefix.unwrap_or(whole(ip))).ok_or(NotASubnet)
    }
}

/// Bits of an address.
const fn whole(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

/// Whether an address counts on its own link only.
#[must_use]
pub const fn is_link_local(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_its_addresses() {
        for (network, ip, within) in [
            ("10.1.2.3/24", "10.1.2.99", true),
            ("10.1.2.3/24", "10.1.3.3", false),
            ("10.1.2.3", "10.1.2.3", true),
            ("10.1.2.3", "10.1.2.4", false),
            ("0.0.0.0/0", "200.1.2.3", true),
            ("::/0", "200.1.2.3", false),
            ("::/0", "fd00::1", true),
            ("fd00::1/64", "fd00::ffff", true),
            ("fd00::1/64", "fd00:0:0:1::1", false),
        ] {
            let own = network.parse::<Subnet>().unwrap();
            assert_eq!(own.contains(ip.parse().unwrap()), within, "{network} {ip}");
        }
    }

    #[test]
    fn what_is_no_address_is_told() {
        for text in [
            "",
            "h0",
            "10.1.2",
            "10.1.2.3/33",
            "10.1.2.3/",
            "fd00::/129",
            "/8",
        ] {
            assert_eq!(text.parse::<Subnet>(), Err(NotASubnet), "{text}");
        }
    }
}
