//! Endpoints outside of a job: no launcher starts them together, and peers are added and
//! removed while they live.

use std::iter::once;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Once};
use std::thread::available_parallelism;

use portolan_boot::{Congestion, LinkChoice, host_identity};
use portolan_runtime::{self as engine, ADDRESS_BYTES, AddPeerError, KeyAddress, Opening};
use portolan_sys::environment;
use portolan_sys::tell::tell;

use crate::configure::{adopt_tuned, engine_config, suite_of};
use crate::guest::{CONGESTION, Keys, SECURITY, fresh_secret, suite};
use crate::open::{Config, Endpoint, OpenError, Opened};
use crate::settings::{Origin, Settings};
use crate::tuned::Link;
use crate::{host_port, interfaces};

/// Silence after which a peer is dead, unless the setting says otherwise, ns. Long, since
/// people stop programs in debuggers, and outside of a job no agent reports such a stop.
const SILENCE_NS: u64 = 30_000_000_000;

/// Values of the setting `link`.
const LINK: [(&str, LinkChoice); 3] = [
    ("auto", LinkChoice::Auto),
    ("xdp", LinkChoice::Xdp),
    ("udp", LinkChoice::Udp),
];

/// Values of the setting `region_peers`: whether regions are for peers that were added once.
const REGION_PEERS: [(&str, Option<bool>); 3] =
    [("auto", None), ("any", Some(false)), ("added", Some(true))];

static CHECKED: Once = Once::new();

impl Endpoint {
    /// Opens an endpoint outside of a job. Its own number is 0, and it has no peers: they are
    /// [added](Endpoint::add_peer) by their [addresses](Endpoint::address), which the programs
    /// exchange as they like. A peer that knows this endpoint's address may also introduce
    /// itself: then it gets a number, and [`engine::Event::PeerCome`] reports it (setting
    /// `unknown_peers`).
    ///
    /// A process may open several, also beside its endpoint in a job. Barriers, broadcasts and
    /// groups are refused. `docs/native.md` describes such endpoints.
    ///
    /// # Errors
    /// - [`OpenError::Setting`], [`OpenError::Disable`], [`OpenError::Interface`],
    ///   [`OpenError::SecretFile`]: a setting is wrong.
    /// - [`OpenError::NoHostPort`]: the setting `link` is `xdp`, and there is no host port.
    /// - [`OpenError::Engine`]: the kernel refused a socket, memory or a thread.
    pub fn open_standalone(config: Config) -> Result<Self, OpenError> {
        crate::begin_log();
        CHECKED.call_once(|| {
            if environment::var_os(portolan_boot::JOB_VARIABLE).is_none() {
                for what in crate::check_environment() {
                    tell(format_args!("portolan: {what}"));
                }
            }
        });
        let call = config.settings().iter();
        let call = call.map(|(name, value)| (name.as_str(), value.as_str()));
        let mut settings = Settings::gather(call, [])?;
        let mut engine_config = standalone_config(&settings, config.threads)?;
        let (_, own) = interfaces::enter(&settings, true, &mut engine_config)?;
        let link = settings.choice("link", &LINK)?;
        let host_port = host_port::outside(link, &settings, &engine_config, own.as_ref())?;
        let network = host_port.as_ref().map_or(Link::Udp, |_| Link::Xdp);
        adopt_tuned(&mut settings, &[network], &mut engine_config)?;
        engine_config.exchange.regions_for_known = settings
            .choice("region_peers", &REGION_PEERS)?
            .unwrap_or(config.regions_for_added);
        let keys = Keys::make(&settings)?;
        keys.enter(&mut engine_config);
        let (opening, lease) = match host_port {
            Some((port, lease)) => (Opening::with_host_port(engine_config, port)?, Some(lease)),
            None => (Opening::new(engine_config)?, None),
        };
        let mut address = keys.address(opening.address());
        let memory = (address.host != 0).then(|| opening.own_memory(&address, keys.secret_hash()));
        let memory = memory.and_then(|made| {
            let without =
                |why| log::info!("no memory is shared with endpoints of this host: {why}");
            made.map_err(without).ok()
        });
        if memory.is_none() {
            address.host = 0;
        }
        let address = address.to_bytes();
        let inner = opening.finish_standalone(memory)?;
        let opened = Arc::new(Opened {
            settings,
            job_id: 0,
            address,
            _lease: lease,
        });
        Ok(Self { inner, opened })
    }

    /// Adds a peer by the bytes that its [`Endpoint::address`] returned. The peer need not be
    /// up. Returns its number, which is this endpoint's own name for it. The same address
    /// again returns the same number. A peer that introduced itself is found by its address,
    /// and keeps its number. A dead peer begins anew under its number.
    ///
    /// # Errors
    /// [`AddPeerError`].
    pub fn add_peer(&self, address: &[u8; ADDRESS_BYTES]) -> Result<u32, AddPeerError> {
        use AddPeerError::{Myself, NoAddress};
        let it = KeyAddress::parse(address).map_err(|_| NoAddress(wrong_with(address)))?;
        if it.port == 0 || it.ip == [0; 16] || it.key == [0; 32] {
            return Err(NoAddress("it has no port, no IP address or no key"));
        }
        let own = KeyAddress::parse(&self.opened.address);
        if own.is_ok_and(|own| own.key == it.key) {
            return Err(Myself);
        }
        self.inner.add(&it)
    }
}

/// The addresses of this host that may be announced for an endpoint outside of a job, as the
/// settings say; the announced one comes first.
///
/// # Errors
/// [`OpenError::Setting`], [`OpenError::Interface`], [`OpenError::Address`]: a setting is wrong.
#[doc(hidden)]
pub fn standalone_addresses() -> Result<Vec<IpAddr>, OpenError> {
    let settings = Settings::gather([], [])?;
    let told = interfaces::told(settings.text("interface"), settings.text("address"))?;
    let others = told.addresses.iter().map(|it| it.ip);
    Ok(once(told.ip).chain(others).collect())
}

/// The IP address and the UDP port in the bytes of an address; `None`: not an address.
/// For interfaces whose users know an endpoint's place by its address alone.
#[doc(hidden)]
#[must_use]
pub fn place_of(address: &[u8; ADDRESS_BYTES]) -> Option<SocketAddr> {
    let it = KeyAddress::parse(address).ok()?;
    Some(SocketAddr::new(IpAddr::from(it.ip).to_canonical(), it.port))
}

/// Reverse of [`place_of`]: an address with a place and no key, which no endpoint has.
#[doc(hidden)]
#[must_use]
pub fn address_at(place: SocketAddr) -> [u8; ADDRESS_BYTES] {
    let ip = match place.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let nobody = KeyAddress {
        port: place.port(),
        ip: ip.octets(),
        key: [0; 32],
        host: 0,
    };
    nobody.to_bytes()
}

/// The reason why bytes are no address that can be added.
const fn wrong_with(address: &[u8; ADDRESS_BYTES]) -> &'static str {
    match address {
        [1, 0, ..] => "it is of an endpoint in a job, which only the job reaches",
        [1, 1, ..] => "its last bytes are not zero",
        [1, ..] => "its form is unknown",
        _ => "its version is unknown",
    }
}

/// Number of endpoints that this process has opened outside of a job.
static OPENED: AtomicU32 = AtomicU32::new(0);

/// The engine's settings outside of a job.
fn standalone_config(
    settings: &Settings,
    threads: engine::Threads,
) -> Result<engine::Config, OpenError> {
    let security = settings.choice("security", &SECURITY)?;
    let suite = suite(settings, security)?;
    let mut config = engine::Config {
        suite: suite_of(security, suite),
        secret: Some(Arc::new(fresh_secret()?)),
        host: match settings.choice("link", &LINK)? {
            // The other links are the network's alone.
            LinkChoice::Auto => host_identity().unwrap_or(0),
            _ => 0,
        },
        trace: settings.file_of("trace", std::process::id(), OPENED.fetch_add(1, Relaxed)),
        ..engine_config(settings, threads)?
    };
    if available_parallelism().is_ok_and(|cores| cores.get() == 1)
        && settings.origin("spin_passes") == Origin::Default
    {
        config.spin_passes = 0;
    }
    // No launcher reports deaths.
    config.udp.icmp_errors = true;
    let proto = &mut config.proto;
    proto.introduces = true;
    proto.strangers = settings.choice("unknown_peers", &[("accept", true), ("refuse", false)])?;
    // For peers that were added and for strangers alike.
    proto.congestion = match settings.choice("congestion", &CONGESTION)? {
        Congestion::Auto => None,
        Congestion::Lan => Some(engine::Congestion::Lan),
        Congestion::Shared => Some(engine::Congestion::Shared),
    };
    proto.peers = settings.number("peers_max")?;
    if settings.origin("silence_ms") == Origin::Default {
        proto.silence_ns = SILENCE_NS;
    }
    // A peer that never answers is given up after the same time as one that died.
    proto.connect_ns = if settings.origin("join_ms") == Origin::Default {
        proto.silence_ns
    } else {
        let wait = settings.millis("join_ms")?.as_nanos();
        u64::try_from(wait).unwrap_or(u64::MAX)
    };
    Ok(config)
}
