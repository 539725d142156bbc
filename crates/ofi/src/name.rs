//! Names: an endpoint's address as libfabric's programs hold it. Some programs have room for
//! 48 bytes, so a name is no longer than its address family requires.
//!
//! | bytes | field |
//! | --- | --- |
//! | 1 | version of the address |
//! | 1 | 4 or 6: the family |
//! | 2 | UDP port |
//! | 4 or 16 | IP address |
//! | 32 | public key |
//! | 8 | host |

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use portolan::{ADDRESS_BYTES, address_at, place_of, standalone_addresses};

use crate::abi::{self, Info};
use crate::error::{ENODATA, Result};

pub type Address = [u8; ADDRESS_BYTES];

/// Maximum length of a name, bytes.
pub const NAME_MAX: usize = 60;
/// Offset of the IP address in an address, where it takes 16 bytes.
const IP_AT: usize = 4;

/// Address family. All names in an address vector are of one, and so have one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    V4 = 4,
    V6 = 6,
}

impl Family {
    pub const fn of(ip: &IpAddr) -> Self {
        match ip {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// The family that an `fi_info` requests, if any.
    ///
    /// # Errors
    /// `ENODATA`: the address format is another provider's.
    pub fn asked(info: &Info) -> Result<Option<Self>> {
        match info.addr_format {
            0 => Ok(None),
            it if it == Self::V4.format() => Ok(Some(Self::V4)),
            it if it == Self::V6.format() => Ok(Some(Self::V6)),
            _ => Err(ENODATA),
        }
    }

    /// `addr_format` of the family's names.
    pub const fn format(self) -> u32 {
        abi::PROV_SPECIFIC | 0x50 | self as u32
    }

    /// Length of the family's names, bytes.
    pub const fn bytes(self) -> usize {
        NAME_MAX - self.left_out()
    }

    /// Number of bytes that only mark an address as IPv4, which names leave out.
    const fn left_out(self) -> usize {
        match self {
            Self::V4 => 12,
            Self::V6 => 0,
        }
    }

    /// The wildcard address, port 0.
    const fn unspecified(self) -> SocketAddr {
        let ip = match self {
            Self::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            Self::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        SocketAddr::new(ip, 0)
    }

    /// The name of an address of this family: the first [bytes](Self::bytes) of the result.
    pub fn name(self, address: &Address) -> [u8; NAME_MAX] {
        let mut name = [0; NAME_MAX];
        name[..IP_AT].copy_from_slice(&address[..IP_AT]);
        name[1] = self as u8;
        let rest = &address[IP_AT + self.left_out()..NAME_MAX];
        name[IP_AT..self.bytes()].copy_from_slice(rest);
        name
    }

    /// The address of a name. `None`: no name, or one of the other family.
    pub fn address(self, name: &[u8]) -> Option<Address> {
        let mut address = address_at(self.unspecified());
        if name.len() != self.bytes() || name[..2] != [address[0], self as u8] {
            return None;
        }
        address[2..IP_AT].copy_from_slice(&name[2..IP_AT]);
        address[IP_AT + self.left_out()..NAME_MAX].copy_from_slice(&name[IP_AT..]);
        let place = place_of(&address)?;
        (Self::of(&place.ip()) == self).then_some(address)
    }
}

/// Where an endpoint listens by default.
///
/// # Errors
/// `ENODATA`: this host has no address of the requested family.
pub fn anywhere(asked: Option<Family>) -> Result<SocketAddr> {
    // A wrong setting is reported when the endpoint is opened.
    let own = standalone_addresses().unwrap_or_default();
    let best = own.first().map_or(Family::V4, Family::of);
    match asked.filter(|it| *it != best) {
        None => Ok(best.unspecified()),
        Some(family) => {
            let ip = own.iter().find(|ip| Family::of(ip) == family);
            Ok(SocketAddr::new(*ip.ok_or(ENODATA)?, 0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_as_long_as_its_family_asks_for() {
        for (place, family, bytes) in [
            ("10.1.2.3:4711", Family::V4, 48),
            ("0.0.0.0:0", Family::V4, 48),
            ("[fd00::1]:4711", Family::V6, 60),
            ("[::]:0", Family::V6, 60),
        ] {
            let place: SocketAddr = place.parse().unwrap();
            let mut address = address_at(place);
            // Key and host.
            (20..60).for_each(|at| address[at] = at as u8);
            assert_eq!((Family::of(&place.ip()), family.bytes()), (family, bytes));
            let name = family.name(&address);
            assert_eq!(family.address(&name[..bytes]), Some(address), "{place}");
            assert_eq!(family.address(&name[..bytes - 1]), None);
        }
    }

    #[test]
    fn a_name_of_the_other_family_is_none() {
        let four = address_at("10.1.2.3:4711".parse().unwrap());
        let six = address_at("[fd00::1]:4711".parse().unwrap());
        assert_eq!(Family::V6.address(&Family::V4.name(&four)), None);
        assert_eq!(Family::V4.address(&Family::V6.name(&six)[..48]), None);
        // An IPv4 address has no name of IPv6.
        assert_eq!(Family::V6.address(&Family::V6.name(&four)), None);
    }
}
