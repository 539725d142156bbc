//! Endpoints outside of a job: as a system beside that of the job, and what it takes until
//! two of them have heard from each other.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use portolan::{ADDRESS_BYTES, Binding, Config, Endpoint};
use portolan_hosts::failure::{Context, Failure, Result, fail};
use portolan_sys::clock::now_ns;
use portolan_wire::KeyAddress;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};
use serde::{Deserialize, Serialize};

use crate::control::{ANSWER_BYTES, Answer, ControlLine, SystemKind};
use crate::peers::tcp::Bytes;
use crate::peers::tls::{Connector, Listening, Session};
use crate::ranks::portolan::{PASSES, Pair, ours, pair};
use crate::ranks::rank::Site;

/// Port of first messages and of their answers.
const FIRST: u16 = 1;
/// A first answer has so long, ns.
const PATIENCE_NS: u64 = 30_000_000_000;
/// What is sent, and comes back.
const WORDS: [u8; ANSWER_BYTES] = [0x5a; ANSWER_BYTES];

/// Settings of an endpoint, by name.
pub type Settings = [(String, String)];

/// Opens one where a rank is.
pub fn open(site: &Site, settings: &Settings) -> Result<Endpoint> {
    let set = |config: Config, (name, value): &(String, String)| config.set(name, value);
    let mut config = settings.iter().fold(Config::default(), set);
    if settings.iter().all(|(name, _)| name != "interface") {
        let ip = site.address()?;
        let bits = if ip.is_ipv4() { 32 } else { 128 };
        config = config.set("interface", format!("{ip}/{bits}"));
    }
    Endpoint::open_standalone(config).map_err(ours)
}

/// What the other side has to be told of one.
pub fn offer(endpoint: &Endpoint) -> String {
    let address = endpoint.address();
    address.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn address(offer: &str) -> Result<[u8; ADDRESS_BYTES]> {
    let digits = offer.as_bytes().chunks(2).map(std::str::from_utf8);
    let bytes = digits.map(|two| u8::from_str_radix(two.ok()?, 16).ok());
    let bytes = bytes.collect::<Option<Vec<u8>>>();
    let address = bytes.and_then(|bytes| bytes.try_into().ok());
    address.ok_or_else(|| Failure::new(format!("{offer:?} is no address")))
}

/// Both sides know each other: neither has to introduce itself.
pub fn join(endpoint: &Rc<Endpoint>, offer: &str, size_max: usize) -> Result<Pair> {
    let peer = endpoint.add_peer(&address(offer)?).map_err(ours)?;
    pair(endpoint, peer, size_max)
}

/// What a rank of the connect bench is to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Step {
    /// Listen by all systems, and say where.
    Listen {
        /// Where you are.
        site: Site,
        /// Of the endpoint.
        settings: Vec<(String, String)>,
    },
    /// That is where the other listens.
    Meet {
        /// Where you are.
        site: Site,
        /// Of your endpoints.
        settings: Vec<(String, String)>,
        /// Its words.
        offer: String,
    },
    /// Answer whoever comes, until `Stop`.
    Serve(SystemKind),
    /// Connect so often, each time until the first answer.
    Connect(SystemKind, u64),
    /// Add so many peers that are nowhere, then remove them.
    Peers(u64),
}

/// A rank of the connect bench.
pub enum Connecting {
    /// Nothing was said yet.
    New,
    /// It listens.
    Host(Host),
    /// It connects.
    Guest(Guest),
}

impl Connecting {
    /// Does as told, and answers.
    pub fn step(&mut self, step: Step, line: &mut ControlLine) -> Result<()> {
        match (step, &mut *self) {
            (Step::Listen { site, settings }, _) => {
                let host = Host::new(&site, &settings)?;
                line.say(&Answer::Offer(host.offer()?))?;
                *self = Self::Host(host);
            }
            (
                Step::Meet {
                    site,
                    settings,
                    offer,
                },
                _,
            ) => {
                *self = Self::Guest(Guest::new(site, settings, &offer)?);
                line.say(&Answer::Ready)?;
            }
            (Step::Serve(system), Self::Host(host)) => host.serve(system, line)?,
            (Step::Connect(system, count), Self::Guest(guest)) => {
                line.say(&Answer::Timed(guest.connect(system, count)?))?;
            }
            (Step::Peers(count), Self::Guest(guest)) => {
                line.say(&Answer::Timed(guest.peers(count)?))?;
            }
            (step, _) => return fail(format!("the bench sent {step:?} before its connections")),
        }
        Ok(())
    }
}

/// Where connections go to.
pub struct Host {
    endpoint: Endpoint,
    tcp: TcpListener,
    tls: Listening,
}

impl Host {
    fn new(site: &Site, settings: &Settings) -> Result<Self> {
        let endpoint = open(site, settings)?;
        let answer = Binding::to(|context, message| {
            // Without credit it is kept, and leaves later.
            let _ = context.reply(&[], message.payload);
        });
        endpoint.bind(FIRST, answer).map_err(ours)?;
        let listen = || {
            let listener = TcpListener::bind((site.address()?, 0)).context("TCP")?;
            listener.set_nonblocking(true)?;
            Ok::<_, Failure>(listener)
        };
        Ok(Self {
            endpoint,
            tcp: listen()?,
            tls: Listening::new(listen()?)?,
        })
    }

    fn offer(&self) -> Result<String> {
        let words = [
            offer(&self.endpoint),
            self.tcp.local_addr()?.to_string(),
            self.tls.offer()?,
        ];
        Ok(serde_json::to_string(&words)?)
    }

    fn serve(&mut self, system: SystemKind, line: &mut ControlLine) -> Result<()> {
        line.say(&Answer::Ready)?;
        let mut passes = 0_u32;
        while !passes.is_multiple_of(PASSES) || !line.stops()? {
            passes = passes.wrapping_add(1);
            match system {
                SystemKind::KernelTcp => {
                    if let Some(stream) = accepted(&self.tcp)? {
                        answer(stream)?;
                    }
                }
                SystemKind::KernelTls => {
                    if let Some(stream) = accepted(self.tls.listener())? {
                        answer(self.tls.session(stream)?)?;
                    }
                }
                _ => _ = self.endpoint.progress().map_err(ours)?,
            }
        }
        line.say(&Answer::Ready)
    }
}

/// A connection that waits, if there is one; no call of it waits.
fn accepted(listener: &TcpListener) -> Result<Option<TcpStream>> {
    match listener.accept() {
        Ok((stream, _)) => ready(stream).map(Some),
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error).context("accepting a connection"),
    }
}

fn ready(stream: TcpStream) -> Result<TcpStream> {
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Takes a first message, and sends it back.
fn answer(mut by: impl Bytes) -> Result<()> {
    let end_ns = now_ns() + PATIENCE_NS;
    hear(&mut by, end_ns)?;
    say(&mut by, end_ns)
}

/// Until all has left.
fn say(by: &mut impl Bytes, end_ns: u64) -> Result<()> {
    let mut sent = 0;
    while sent < WORDS.len() || !by.flush()? {
        sent += by.send(&WORDS[sent..])?;
        on_time(end_ns)?;
    }
    Ok(())
}

/// Until all has come.
fn hear(by: &mut impl Bytes, end_ns: u64) -> Result<()> {
    let mut room = [0; ANSWER_BYTES];
    let mut came = 0;
    while came < room.len() {
        // A handshake has words of its own.
        by.flush()?;
        came += by.receive(&mut room[came..])?;
        on_time(end_ns)?;
    }
    Ok(())
}

fn on_time(end_ns: u64) -> Result<()> {
    match now_ns() < end_ns {
        true => Ok(()),
        false => fail("the connect bench: no first answer within 30 s"),
    }
}

/// Who connects.
pub struct Guest {
    site: Site,
    settings: Vec<(String, String)>,
    address: [u8; ADDRESS_BYTES],
    tcp: SocketAddr,
    tls: Connector,
}

impl Guest {
    fn new(site: Site, settings: Vec<(String, String)>, offer: &str) -> Result<Self> {
        let [own, tcp, tls]: [String; 3] = serde_json::from_str(offer)?;
        let tcp = tcp.parse();
        Ok(Self {
            site,
            settings,
            address: address(&own)?,
            tcp: tcp.map_err(|_| Failure::new(format!("{offer:?} has no TCP address")))?,
            tls: Connector::new(&tls)?,
        })
    }

    /// The times until the first answer, ns; of ours those of opening endpoints before.
    fn connect(&self, system: SystemKind, count: u64) -> Result<[Vec<u64>; 2]> {
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..count {
            let start_ns = now_ns();
            let end_ns = start_ns + PATIENCE_NS;
            match system {
                SystemKind::KernelTcp => {
                    let mut stream = begin(self.tcp)?;
                    say(&mut stream, end_ns)?;
                    hear(&mut stream, end_ns)?;
                    times[1].push(now_ns() - start_ns);
                }
                SystemKind::KernelTls => {
                    let stream = begin(self.tls.address())?;
                    let mut session: Session = self.tls.session(stream)?;
                    say(&mut session, end_ns)?;
                    hear(&mut session, end_ns)?;
                    times[1].push(now_ns() - start_ns);
                }
                _ => {
                    let [opened_ns, answered_ns] = self.first_answer(end_ns)?;
                    times[0].push(opened_ns - start_ns);
                    times[1].push(answered_ns - opened_ns);
                }
            }
        }
        Ok(times)
    }

    /// Opens an endpoint and hears from the other; gives when it was open, and when it heard.
    fn first_answer(&self, end_ns: u64) -> Result<[u64; 2]> {
        let endpoint = open(&self.site, &self.settings)?;
        let came = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&came);
        let take = Binding::to(move |_, _| count.store(now_ns(), Relaxed));
        endpoint.bind(FIRST, take).map_err(ours)?;
        let opened_ns = now_ns();
        let peer = endpoint.add_peer(&self.address).map_err(ours)?;
        endpoint.send(peer, FIRST, &WORDS).map_err(ours)?;
        while came.load(Relaxed) == 0 {
            endpoint.progress().map_err(ours)?;
            on_time(end_ns)?;
        }
        endpoint.close().map_err(ours)?;
        Ok([opened_ns, came.load(Relaxed)])
    }

    /// The mean times of adding a peer and of removing it, ns.
    fn peers(&self, count: u64) -> Result<[Vec<u64>; 2]> {
        let settings = [("peers_max".to_owned(), count.to_string())];
        let settings = [&self.settings[..], &settings].concat();
        let endpoint = open(&self.site, &settings)?;
        let pattern = KeyAddress::parse(&self.address);
        let pattern = pattern.map_err(|_| Failure::new("an address of the bench is none"))?;
        let addresses: Vec<_> = (1..=count)
            .map(|number| {
                let mut it = pattern;
                it.key[..8].copy_from_slice(&number.to_le_bytes());
                it.to_bytes()
            })
            .collect();
        let start_ns = now_ns();
        let mut peers = Vec::with_capacity(addresses.len());
        for address in &addresses {
            peers.push(endpoint.add_peer(address).map_err(ours)?);
        }
        let added_ns = now_ns();
        for &peer in &peers {
            endpoint.remove_peer(peer).map_err(ours)?;
        }
        let removed_ns = now_ns();
        endpoint.close().map_err(ours)?;
        let each = |ns: u64| vec![ns / count.max(1)];
        Ok([each(added_ns - start_ns), each(removed_ns - added_ns)])
    }
}

/// Begins to connect; no call of the connection waits.
fn begin(to: SocketAddr) -> Result<TcpStream> {
    let family = match to {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    match connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => ready(TcpStream::from(socket)),
        Err(errno) => Err(errno).context(format!("connecting to {to}")),
    }
}
