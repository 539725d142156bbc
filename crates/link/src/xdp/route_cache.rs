//! The way to each address: by which headers a packet reaches it past the
//! kernel, or that it has to go through it. The kernel finds routes and
//! neighbours (ARP, NDP); here is only remembered what it said.

use std::collections::HashMap;
use std::net::IpAddr;

use portolan_sys::net::{Change, Changes, Netlink};
use portolan_sys::raw::Errno;

use super::packet::{Ends, Template, ip_of};
use super::port::SourcePort;
use crate::LinkAddress;

/// After so long without an answer the kernel is asked again, ns. Doubled up
/// to [`RETRY_MAX_NS`].
const RETRY_NS: u64 = 1_000_000;
const RETRY_MAX_NS: u64 = 1_000_000_000;
/// How often a packet takes the kernel's way, so that it looks whether the
/// neighbour is still there, ns.
const CONFIRM_NS: u64 = 5_000_000_000;
/// How often news are looked for, ns.
const NEWS_NS: u64 = 1_000_000;

/// Most addresses that are remembered; then all are forgotten.
const WAYS_MAX: usize = 65_536;

/// Our end of all ways.
#[derive(Clone, Copy, Debug)]
pub(super) struct Own {
    /// The interface and its address.
    pub interface: u32,
    pub mac: [u8; 6],
    /// Our UDP port.
    pub port: u16,
}

#[derive(Debug)]
struct CachedRoute {
    /// How packets go; none: through the kernel.
    headers: Option<Template>,
    /// Who is asked for on the Ethernet: the peer or a router.
    next_hop: Option<IpAddr>,
    /// The kernel is to be asked again then.
    ask_at: u64,
    /// How long to wait after that if there is no answer.
    patience: u64,
    /// A packet takes the kernel's way then.
    confirm_at: u64,
    /// From where they leave.
    from: SourcePort,
}

/// All ways.
#[derive(Debug)]
pub(super) struct RouteCache {
    own: Own,
    kernel: Netlink,
    changes: Changes,
    news_at: u64,
    known: HashMap<LinkAddress, CachedRoute>,
    /// The last one that was asked for, as most packets go there: its headers,
    /// and until when that answer holds.
    last: Option<(LinkAddress, Template, u64)>,
}

impl RouteCache {
    pub fn new(own: Own) -> Result<Self, Errno> {
        Ok(Self {
            own,
            kernel: Netlink::open()?,
            changes: Changes::open()?,
            news_at: 0,
            known: HashMap::new(),
            last: None,
        })
    }

    /// PollCadence for news now and then. True if the network has changed, so that
    /// what failed before may be tried again.
    #[inline]
    pub fn look(&mut self, now: u64) -> bool {
        self.has_news(now) && self.hear(now)
    }

    /// Whether [`Self::look`] has something to do.
    #[inline]
    pub const fn has_news(&self, now: u64) -> bool {
        now >= self.news_at
    }

    #[cold]
    fn hear(&mut self, now: u64) -> bool {
        self.news_at = now + NEWS_NS;
        let Self { known, last, .. } = self;
        let mut changed = false;
        self.changes.poll(|change| {
            *last = None;
            let all = change == Change::Network;
            changed |= all;
            for way in known.values_mut() {
                let meant = matches!(change, Change::Neighbour(ip) if way.next_hop == Some(ip));
                if all || meant {
                    way.ask_at = 0;
                    way.patience = RETRY_NS;
                }
            }
        });
        changed
    }

    /// The headers by which a packet reaches `to`; `None`: the kernel has to
    /// send it.
    #[inline]
    pub fn find(&mut self, to: &LinkAddress, now: u64) -> Option<&Template> {
        let fresh = matches!(&self.last, Some((at, _, until)) if at == to && now < *until);
        if !fresh {
            self.last = self.seek(to, now);
        }
        self.last.as_ref().map(|(_, headers, _)| headers)
    }

    /// Packets to an address arrive there by a detour, of which `sent` have left
    /// in all. True if it gets another source port now.
    pub fn mis_steered(&mut self, to: &LinkAddress, now: u64, sent: u64) -> bool {
        let way = self.known.get(to);
        let goes = way.is_some_and(|way| way.headers.is_some());
        goes && self.change_port(to, |from| from.mis_steered(now, sent))
    }

    /// A packet to an address took the kernel's way: it is that which is seen
    /// there.
    pub fn went_by_kernel(&mut self, to: &LinkAddress) {
        if let Some(way) = self.known.get_mut(to) {
            way.from.reset_doubt();
        }
    }

    /// Changes the source port towards an address; gives whether that was so.
    pub fn change_port(
        &mut self,
        to: &LinkAddress,
        change: impl FnOnce(&mut SourcePort) -> bool,
    ) -> bool {
        let Some(way) = self.known.get_mut(to) else {
            return false;
        };
        let changed = change(&mut way.from);
        if changed {
            // The kernel is asked for the rest again.
            way.ask_at = 0;
            self.last = None;
        }
        changed
    }

    fn seek(&mut self, to: &LinkAddress, now: u64) -> Option<(LinkAddress, Template, u64)> {
        if self.known.len() >= WAYS_MAX && !self.known.contains_key(to) {
            self.known.clear();
        }
        let way = self.known.entry(*to).or_insert(CachedRoute {
            headers: None,
            next_hop: None,
            ask_at: 0,
            patience: RETRY_NS,
            confirm_at: now + CONFIRM_NS,
            from: SourcePort::new(self.own.port),
        });
        if now >= way.ask_at {
            ask(&self.own, &self.kernel, to, way, now);
        }
        let headers = way.headers?;
        if now >= way.confirm_at {
            way.confirm_at = now + CONFIRM_NS;
            return None;
        }
        Some((*to, headers, way.confirm_at.min(way.ask_at)))
    }
}

/// Asks the kernel for the way.
#[cold]
fn ask(own: &Own, kernel: &Netlink, to: &LinkAddress, way: &mut CachedRoute, now: u64) {
    let (next_hop, answer) = resolve(own, kernel, to, way.from.get()).unwrap_or_default();
    way.next_hop = next_hop;
    way.headers = answer.map(|(headers, _)| headers);
    match answer {
        Some((_, permanent)) => {
            way.ask_at = u64::MAX;
            way.patience = RETRY_NS;
            way.confirm_at = if permanent {
                u64::MAX
            } else {
                now + CONFIRM_NS
            };
        }
        None => {
            way.ask_at = now + way.patience;
            way.patience = (way.patience * 2).min(RETRY_MAX_NS);
        }
    }
}

type Answer = (Option<IpAddr>, Option<(Template, bool)>);

fn resolve(own: &Own, kernel: &Netlink, to: &LinkAddress, from_port: u16) -> Option<Answer> {
    let ip = ip_of(to);
    let route = kernel.route(ip, to.scope).ok()?;
    if route.interface != own.interface || route.local {
        return None;
    }
    let next_hop = if route.routed { route.gateway? } else { ip };
    let found = kernel.neighbour(own.interface, next_hop).ok()?;
    let headers = found.and_then(|found| {
        let headers = Template::new(&Ends {
            from_mac: own.mac,
            to_mac: found.mac,
            from: route.source?,
            to: ip,
            from_port,
            to_port: to.port,
        })?;
        Some((headers, found.permanent))
    });
    Some((Some(next_hop), headers))
}
