//! Opening an endpoint: first its own address, then, when the others' are
//! known, the lanes to them.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use portolan_engine::{
    Core, Credentials, Death, Engine, Lane, Lanes, Matched, NetLane, NewPeer, PACKET_MIN,
    ProtoTables, Settings, ShmLane,
};
use portolan_link::shm::{ENDPOINTS_MAX, SegmentConfig, ShmPort};
use portolan_link::udp::{Udp, UdpConfig};
use portolan_link::xdp::{HostPort, Xdp};
use portolan_link::{Link, LinkAddress, LinkError};
use portolan_proto::congestion::Mode;
use portolan_proto::{Identity, LocalNetwork, NetAddress};
use portolan_ring::{Fence, ForkMark, Owned};
use portolan_sys::barrier;
use portolan_sys::clock::{is_tsc, now_ns};
use portolan_sys::epoll::Epoll;
use portolan_sys::memory::cache_bytes;
use portolan_sys::process::Pidfd;
use portolan_sys::raw::Errno;
use portolan_sys::slice;
use portolan_sys::tell::tell;
use portolan_wire::{Address, KeyAddress};

use crate::clock::HostClock;
use crate::config::{Config, OpenError, PeerConfig, Watch};
use crate::neighbours::Neighbours;
use crate::network::{First, Further, Links};
use crate::observe::{Trace, describe};
use crate::sleep::{Backoff, WaitSet};
use crate::space::Space;
use crate::state::{Near, OwnNetwork, State};

/// An endpoint that has an address and knows no peers yet.
#[derive(Debug)]
pub struct Opening {
    config: Config,
    network: Option<Links>,
    address: Address,
}

/// An endpoint's own memory, which others of its host may share.
#[derive(Debug)]
pub struct OwnMemory {
    port: ShmPort,
    neighbours: Neighbours,
}

/// A host port that this process has taken over.
#[derive(Debug)]
pub struct MappedHostPort(Box<Xdp>);

impl MappedHostPort {
    /// Takes a host port over. After an error the caller can use a socket instead.
    ///
    /// # Errors
    /// [`OpenError::HostPort`].
    pub fn map(config: &Config, port: HostPort) -> Result<Self, OpenError> {
        let frame_max = config.udp.frame_max.unwrap_or(PACKET_MAX).min(PACKET_MAX);
        let udp = UdpConfig {
            frame_max: Some(frame_max),
            ..config.udp
        };
        let link = Xdp::adopt(port, &udp).map_err(|e| OpenError::HostPort(e.to_string()))?;
        Ok(Self(Box::new(link)))
    }
}

/// The memory that the endpoints of a host share, as the launcher made it.
#[derive(Debug)]
pub struct ShmAttachment {
    /// The segment.
    pub segment: OwnedFd,
    /// Our own index in it.
    pub index: u16,
    /// This endpoint's share of the doorbells
    /// ([`SharedDoorbells::of`](portolan_sys::shared_doorbell::SharedDoorbells::of)).
    pub doorbells: Vec<OwnedFd>,
}

/// Largest packet that the protocol's frames hold: an Ethernet jumbo frame's.
const PACKET_MAX: usize = 8_972;
/// Assumed slice if the kernel does not report it, ns: as in Linux before 6.12 on 8 cores or more.
const SLICE_NS: u64 = 3_000_000;
/// Longest message assumed to stay in the caches if their size is unknown, bytes. Otherwise three
/// quarters of their size, as in the C library.
const CACHED_MAX: u64 = 24 << 20;
/// Bytes of a frame in front of a packet's chunks.
const FRAME_EXTRA: u32 = 192;
const FRAME_MIN: u32 = 1_472;

/// Opens the socket, with packets of at most [`PACKET_MAX`] bytes.
fn open_udp(config: &UdpConfig) -> Result<Udp, OpenError> {
    let udp = Udp::open(config)?;
    if udp.capabilities().frame_max <= PACKET_MAX {
        return Ok(udp);
    }
    drop(udp);
    Ok(Udp::open(&UdpConfig {
        frame_max: Some(PACKET_MAX),
        ..*config
    })?)
}

/// Opens a socket on each further network.
fn open_further(config: &Config) -> Result<Vec<Further>, OpenError> {
    let open = |&(address, prefix): &(IpAddr, u8)| {
        let link = open_udp(&UdpConfig {
            address: Some(address),
            ..config.udp
        })?;
        Ok(Further {
            link,
            prefix: in_128(address, prefix),
        })
    };
    config.further.iter().map(open).collect()
}

/// Prefix length of an address's network, in the 128 bits of its IPv6 form.
const fn in_128(address: IpAddr, prefix: u8) -> u8 {
    if address.is_ipv4() {
        96 + prefix
    } else {
        prefix
    }
}

impl Opening {
    /// Opens the socket, if the settings ask for one.
    ///
    /// # Errors
    /// [`OpenError::Bind`], [`OpenError::Setting`].
    pub fn new(config: Config) -> Result<Self, OpenError> {
        check(&config)?;
        let network = if config.network {
            Some(First::Udp(open_udp(&config.udp)?))
        } else {
            None
        };
        Self::over(config, network)
    }

    /// As [`Opening::new`], with a host port in place of a socket.
    ///
    /// # Errors
    /// [`OpenError::Setting`].
    pub fn with_host_port(config: Config, port: MappedHostPort) -> Result<Self, OpenError> {
        check(&config)?;
        Self::over(config, Some(First::Xdp(port.0)))
    }

    /// Sets whether a host port that was mapped before it was bound is now bound. If it cannot be,
    /// the kernel's socket carries all packets.
    pub fn set_bound(&mut self, bound: bool) {
        if let Some(First::Xdp(link)) = self.network.as_mut().map(|network| &mut network.first) {
            link.set_bound(bound);
        }
    }

    fn over(config: Config, first: Option<First>) -> Result<Self, OpenError> {
        let network = match first {
            Some(first) => {
                let further = open_further(&config)?;
                Some(Links::new(first, further))
            }
            None => None,
        };
        let mut address = Address {
            port: 0,
            ip: [0; 16],
            id: config.id,
            life: config.life,
            host: config.host,
        };
        if let Some(network) = &network {
            let at = network.first.local_address().map_err(|e| {
                OpenError::Setting(format!("the UDP socket has no address ({e:?})"))
            })?;
            address.port = at.port;
            address.ip = at.ip;
            // The unspecified address of either family.
            if matches!(
                at.ip,
                [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 | 0xff, 0 | 0xff, 0, 0, 0, 0]
            ) {
                let told = config.udp.address.or(config.reached_at);
                address.ip = match told.unwrap_or(Ipv4Addr::LOCALHOST.into()) {
                    IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                    IpAddr::V6(ip) => ip.octets(),
                };
            }
        }
        Ok(Self {
            config,
            network,
            address,
        })
    }

    /// Address by which others reach this endpoint.
    #[must_use]
    pub const fn address(&self) -> &Address {
        &self.address
    }

    /// Opens the endpoint outside of a job, without peers. The configuration has
    /// [`portolan_proto::Config::introduces`], an agreement and rank 0.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn finish_standalone(self, memory: Option<OwnMemory>) -> Result<Space, OpenError> {
        let myself = PeerConfig {
            address: self.address,
            public_key: None,
            local_index: None,
            pid: 0,
            mode: Mode::Lan,
            barred: false,
            restarts: 0,
            since: 0,
            reason: "this process".into(),
        };
        self.finish_with(&[myself], None, memory, None)
    }

    /// Makes memory that endpoints of this host, outside of a job, share with this one, and listens
    /// for them as the endpoint at `address`. Those with another `secret` (a hash of one) are
    /// reached by the network.
    ///
    /// # Errors
    /// Reason, as text; the others are then reached by the network.
    pub fn own_memory(&self, address: &KeyAddress, secret: u64) -> Result<OwnMemory, String> {
        let disabled = self.config.udp.disabled;
        let sizes = SegmentConfig {
            remote_barrier: !disabled.membarrier,
            ..SegmentConfig::default()
        };
        let (port, shared) = ShmPort::alone(ENDPOINTS_MAX, &sizes, !disabled.cma)
            .map_err(|error| error.to_string())?;
        let neighbours = Neighbours::listen(*address, secret, shared);
        let neighbours = neighbours.map_err(|error| format!("no unix socket: {error}"))?;
        Ok(OwnMemory { port, neighbours })
    }

    /// Opens the endpoint. `peers`: all ranks of the job in order, this one among them; they need
    /// not be up.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn finish(
        self,
        peers: &[PeerConfig],
        shm: Option<ShmAttachment>,
        watch: Option<Box<dyn Watch>>,
    ) -> Result<Space, OpenError> {
        self.finish_with(peers, shm, None, watch)
    }

    fn finish_with(
        self,
        peers: &[PeerConfig],
        shm: Option<ShmAttachment>,
        own: Option<OwnMemory>,
        watch: Option<Box<dyn Watch>>,
    ) -> Result<Space, OpenError> {
        let Self {
            config,
            network,
            address,
        } = self;
        let standalone = config.proto.introduces;
        let size = u32::try_from(peers.len())
            .map_err(|_| OpenError::Setting("more ranks than 2^32".to_owned()))?;
        if config.rank >= size {
            return Err(OpenError::Setting(format!(
                "rank {} of a job of {size}: ranks are numbered from 0",
                config.rank
            )));
        }
        let mut ranks = Vec::with_capacity(peers.len());
        let link = network
            .as_ref()
            .map_or("udp", |n| n.first.capabilities().name);
        let mut lanes = Lanes::with_capacity(peers.len(), link);
        if standalone {
            lanes.set_standalone();
        }
        let mut pids = Vec::new();
        let mut ended = Vec::new();
        let mut indices = Vec::new();
        let mut tables = None;
        if let Some(network) = &network {
            let mut proto = config.proto;
            if !standalone {
                proto.peers = size.max(1);
                proto.active = proto.active.min(size.max(2) - 1);
            }
            // At most PACKET_MAX, see `open_udp`.
            proto.packet_max = network.first.capabilities().frame_max as u16;
            if proto.packet_max < PACKET_MIN {
                return Err(OpenError::Setting(format!(
                    "the interface takes UDP payloads of {} bytes at most, {PACKET_MIN} are \
                     needed: give it an MTU of 1,280 or more",
                    proto.packet_max
                )));
            }
            proto.frame_bytes = (u32::from(proto.packet_max) + FRAME_EXTRA)
                .next_multiple_of(64)
                .max(FRAME_MIN);
            proto.receive_packets = network.first.receive_capacity().full_packets.max(1) as u32;
            proto.more_paths = proto.active * network.further().len() as u32;
            let mut made = tables_of(&proto, &config)?;
            let own = NetAddress {
                ip: address.ip,
                port: address.port,
            };
            let prefix = |ip| in_128(ip, config.prefix);
            let prefix = config.udp.address.map_or(128, prefix);
            set_networks(&mut made, network, own, prefix)
                .map_err(|e| OpenError::Setting(format!("a UDP socket has no address ({e:?})")))?;
            tables = Some(made);
        }
        for (rank, peer) in (0..).zip(peers) {
            let reason = &peer.reason;
            lanes.returns.found(rank, peer.restarts, peer.since);
            if rank == config.rank {
                lanes.push(Lane::Myself, "this process");
                continue;
            }
            log::debug!("rank {}: way to rank {rank}: {reason}", config.rank);
            if peer.barred {
                lanes.push(Lane::Dead(Death::Unreachable), reason);
                continue;
            }
            if peer.pid != 0 && !config.udp.disabled.pidfd && peer.address.host == config.host {
                match Pidfd::open(peer.pid) {
                    Ok(pid) => pids.push((rank, pid)),
                    Err(Errno::SRCH) => ended.push(rank),
                    Err(_) => {}
                }
            }
            if let (Some(shm), Some(index)) = (&shm, peer.local_index)
                && index != shm.index
            {
                indices.push((index, rank));
                lanes.push(Lane::Shm(index), reason);
                continue;
            }
            let Some(tables) = &mut tables else {
                lanes.push(Lane::Dead(Death::Unreachable), reason);
                continue;
            };
            let to = NetAddress {
                ip: peer.address.ip,
                port: peer.address.port,
            };
            let new = NewPeer {
                id: peer.address.id,
                life: peer.address.life,
                public_key: peer.public_key,
                to,
                mode: peer.mode,
            };
            let added = tables
                .add_peer(&new)
                .map_err(|e| OpenError::Setting(format!("rank {rank}: {e}")))?;
            debug_assert_eq!(added.0 as usize, ranks.len());
            if config.fixed_lives {
                tables.view().pin_incarnation(added);
            }
            ranks.push(rank);
            lanes.push(Lane::Net(added), reason);
        }
        let settings = settings(&config, size);
        let matched = Matched::new(&settings, &lanes);
        let mut core = Core::new(&settings, lanes);
        if let Some(path) = &config.trace {
            let begun = Trace::begin(path, config.rank).map_err(|error| {
                OpenError::Setting(format!("the trace {}: {error}", path.display()))
            })?;
            core.trace = Some(Box::new(begun));
        }
        let net = match (network, tables) {
            (Some(network), Some(tables)) if standalone || !ranks.is_empty() => {
                let silence_ns = config.proto.silence_ns;
                let mut net = NetLane::new(network, tables, ranks, silence_ns, now_ns());
                if config.helper {
                    net.gather();
                }
                Some(net)
            }
            _ => None,
        };
        let cma = !config.udp.disabled.cma;
        let (own, neighbours) = own.map(|own| (own.port, own.neighbours)).unzip();
        let link = match shm {
            Some(shm) if !indices.is_empty() => {
                let mut link = ShmPort::attach(shm.segment, shm.index, shm.doorbells, cma)
                    .map_err(|e| OpenError::Shm(e.to_string()))?;
                for (index, rank) in &indices {
                    link.set_process(*index, peers[*rank as usize].pid);
                }
                Some(link)
            }
            _ => own,
        };
        let shm = link.map(|link| {
            let copy_min = if cma { config.copy_min } else { usize::MAX };
            let cached_max = cache_bytes().map_or(CACHED_MAX, |bytes| bytes / 4 * 3);
            ShmLane::new(link, &indices, copy_min, cached_max)
        });
        let system =
            |call| move |e: portolan_sys::raw::Errno| OpenError::System(call, e.raw_os_error());
        let events = match &neighbours {
            Some(neighbours) => neighbours.events(),
            None => Epoll::new().map_err(system("epoll_create1"))?,
        };
        let wait_set = WaitSet::new(events).map_err(|(call, e)| system(call)(e))?;
        let wait_set = Arc::new(wait_set);
        let mut watch = watch;
        let pulse = watch.as_mut().and_then(|watch| watch.pulse());
        // Ranks that share a core would cut each other's slices short.
        let shortens = config.spin_passes > 0 && !config.udp.disabled.slice;
        let slice_ns = slice::own().unwrap_or(SLICE_NS);
        let backoff = Backoff::new(
            config.spin_passes,
            config.yield_ns,
            config.ranks_beside,
            slice_ns,
            shortens,
        );
        let clock = HostClock::new(config.clock.clone(), !config.udp.disabled.tsc && is_tsc());
        let engine = Engine::new(core, matched, net, shm, clock);
        let mut state = State::new(engine, watch, pids, Arc::clone(&wait_set), backoff)
            .map_err(system("epoll_ctl"))?;
        state.cma = cma;
        if standalone {
            state.own_network = OwnNetwork::of(address.ip);
        }
        if let Some(neighbours) = neighbours {
            let near = Near::new(neighbours, config.host, config.proto.connect_ns);
            state.set_near(near);
        }
        if !config.one_sided {
            state.forbid_one_sided();
        }
        // Ranks that ended since addresses were exchanged: no other source may report them.
        for rank in ended {
            state.ended(rank, Death::Ended);
        }
        // Notices from before the endpoint existed.
        state.hear();
        let tables = describe::tables(&mut state, 0);
        // Without a helper thread the ownership words have one user, and no fence is needed.
        let remote = !config.helper
            || (!config.udp.disabled.membarrier && barrier::register_threads().is_ok());
        let fence = if remote { Fence::Remote } else { Fence::Local };
        let owned = Owned::new(state, ForkMark::new()?, config.threads.into(), fence);
        Space::new(owned, &config, size, wait_set, pulse, tables)
    }
}

/// The engine's part of the settings.
fn settings(config: &Config, size: u32) -> Settings {
    Settings {
        rank: config.rank,
        size,
        standalone: config.proto.introduces,
        secrets: config.secrets,
        unexpected_bytes: config.unexpected_bytes,
        unexpected_share: config.unexpected_share,
        queue_bytes: config.queue_bytes,
        queue_share: config.queue_share,
        copy_bytes: config.copy_bytes,
        reply_bytes: config.reply_bytes,
        exchange: config.exchange,
        push_shm: config.push_shm,
        push_net: config.push_net,
        regions_cached: config.regions_cached,
        tell,
    }
}

/// Makes the protocol's tables, with the configured keys.
fn tables_of(proto: &portolan_proto::Config, config: &Config) -> Result<ProtoTables, OpenError> {
    let agreement = config.agreement.as_ref();
    let credentials = Credentials {
        me: Identity {
            id: config.id,
            life: config.life,
        },
        suite: config.suite,
        secret: config
            .secret
            .as_deref()
            .map_or(&[0; 32], |secret| &**secret),
        agreement: agreement.map(|it| (&**it.private, it.mix.as_deref().map(|mix| &**mix))),
        random: &config.secrets.protocol,
    };
    Ok(ProtoTables::new(proto, &credentials)?)
}

/// Registers the networks with the protocol, if there are several; `address` and `prefix` are those
/// of the first.
fn set_networks(
    tables: &mut ProtoTables,
    network: &Links,
    address: NetAddress,
    prefix: u8,
) -> Result<(), LinkError> {
    // At most PACKET_MAX, see `open_udp`.
    let most = |bytes: usize| bytes.min(usize::from(u16::MAX)) as u16;
    let further = network.further();
    if further.is_empty() {
        return Ok(());
    }
    let first = LocalNetwork {
        address,
        prefix,
        packet_max: most(network.first.capabilities().frame_max),
    };
    tables.view().set_network(0, first);
    for (number, other) in (1..).zip(further) {
        let LinkAddress { ip, port, .. } = other.link.local_address()?;
        let local = LocalNetwork {
            address: NetAddress { ip, port },
            prefix: other.prefix,
            packet_max: most(other.link.capabilities().frame_max),
        };
        tables.view().set_network(number, local);
    }
    Ok(())
}

fn check(config: &Config) -> Result<(), OpenError> {
    let wrong = |what: &str| Err(OpenError::Setting(what.to_owned()));
    if config.takeover_ns == 0 {
        return wrong("takeover must be at least 1 ns");
    }
    if config.further.len() >= portolan_proto::PATHS_MAX {
        return wrong("at most 4 networks can be used at once");
    }
    if config.unexpected_share == 0 || config.queue_share == 0 {
        return wrong("the shares of the memory for arriving messages must not be 0");
    }
    Ok(())
}
