//! One of the two processes that measure. It does as the bench says, and
//! between two slices it sleeps on its line to the bench.

use std::collections::HashMap;
use std::net::{IpAddr, TcpListener, ToSocketAddrs};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;

use portolan_hosts::failure::{Context, Failure, Result, fail};
use portolan_hosts::lab::Lab;
use portolan_hosts::print::print;
use rustix::thread::{CpuSet, sched_getaffinity};

use serde::{Deserialize, Serialize};

use crate::control::{Answer, ControlLine, Followed, Led, Op, Order, SystemKind};
use crate::experiments::ring::Circle;
use crate::experiments::threads::Calling;
use crate::peers::bare::Unmet;
use crate::peers::floor::Floor;
use crate::peers::kernel::BoundUdp;
use crate::peers::program::MARK;
use crate::peers::tcp::Tcp;
use crate::peers::tls::{Listening, Tls};
use crate::peers::ucx::Ucx;
use crate::ranks::asleep::{Asleep, Sleeps, Wait};
use crate::ranks::drive::{self, Channel, Meter};
use crate::ranks::flood::Flood;
use crate::ranks::matched::Desk;
use crate::ranks::portolan::Ours;
use crate::ranks::standalone::{self, Connecting, Settings};
use crate::slice::Rule;

/// Half of a system that can be measured.
pub trait System {
    /// What the other half has to be told.
    fn offer(&mut self) -> Result<String>;
    /// The other half's offer; afterwards both can be used.
    fn join(&mut self, offer: &str) -> Result<()>;
    /// Measures for one slice: says `Sent`, hears `Stop`.
    fn lead(&mut self, op: &Op, rule: &Rule, line: &mut ControlLine) -> Result<Led>;
    /// Serves a slice: says `Ready`, hears `Finish`.
    fn follow(&mut self, op: &Op, line: &mut ControlLine) -> Result<Followed>;
}

/// Where a rank stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// Its host, as a name that resolves there, or an address.
    pub host: String,
    /// All ranks are on one host.
    pub one_host: bool,
}

impl Site {
    /// On a host of a lab, with the others elsewhere.
    pub fn in_lab(lab: &Lab, host: u32) -> Self {
        Self {
            host: lab.ipv4(host).to_string(),
            one_host: false,
        }
    }

    /// On this host, with all others.
    pub fn here() -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            one_host: true,
        }
    }

    /// The host's address, IPv4 where it has one.
    pub fn address(&self) -> Result<IpAddr> {
        let found = (self.host.as_str(), 0)
            .to_socket_addrs()
            .context(format!("finding the address of host {:?}", self.host))?;
        let mut found: Vec<IpAddr> = found.map(|address| address.ip()).collect();
        found.sort();
        found
            .first()
            .copied()
            .ok_or_else(|| Failure::new(format!("host {:?} has no address", self.host)))
    }
}

/// A channel before and after it was joined.
enum Half<B, C> {
    Bound(B),
    Joined(C),
    Gone,
}

/// A system whose patterns are driven by code of ours.
struct Driven<B, C, F> {
    half: Half<B, C>,
    offer: String,
    join: F,
    meter: Meter,
}

impl<B, C: Channel, F: FnMut(B, &str) -> Result<C>> Driven<B, C, F> {
    fn boxed<'a>(bound: B, offer: String, join: F) -> Box<dyn System + 'a>
    where
        B: 'a,
        C: 'a,
        F: 'a,
    {
        Box::new(Self {
            half: Half::Bound(bound),
            offer,
            join,
            meter: Meter::new(),
        })
    }

    fn joined(half: &mut Half<B, C>) -> Result<&mut C> {
        match half {
            Half::Joined(channel) => Ok(channel),
            Half::Bound(_) | Half::Gone => fail("a system was used before it was joined"),
        }
    }
}

impl<B, C: Channel, F: FnMut(B, &str) -> Result<C>> System for Driven<B, C, F> {
    fn offer(&mut self) -> Result<String> {
        Ok(self.offer.clone())
    }

    fn join(&mut self, offer: &str) -> Result<()> {
        let Half::Bound(bound) = std::mem::replace(&mut self.half, Half::Gone) else {
            return fail("a system was joined twice");
        };
        self.half = Half::Joined((self.join)(bound, offer)?);
        Ok(())
    }

    fn lead(&mut self, op: &Op, rule: &Rule, line: &mut ControlLine) -> Result<Led> {
        drive::lead(
            Self::joined(&mut self.half)?,
            op,
            rule,
            &mut self.meter,
            line,
        )
    }

    fn follow(&mut self, op: &Op, line: &mut ControlLine) -> Result<Followed> {
        drive::follow(Self::joined(&mut self.half)?, op, line)
    }
}

/// A system that polls, or sleeps in its calls.
fn waiting<'a, B: 'a, C: Sleeps + 'a>(
    wait: Wait,
    bound: B,
    offer: String,
    mut join: impl FnMut(B, &str) -> Result<C> + 'a,
) -> Box<dyn System + 'a> {
    match wait {
        Wait::Poll => Driven::boxed(bound, offer, join),
        Wait::Block | Wait::Call => {
            let join = move |bound, offer: &str| join(bound, offer).map(Asleep);
            Driven::boxed(bound, offer, join)
        }
    }
}

/// Makes this rank's half of `system`.
fn prepare(
    system: SystemKind,
    leads: bool,
    wait: Wait,
    size_max: usize,
    lossy: bool,
    site: &Site,
    settings: &Settings,
) -> Result<Box<dyn System>> {
    Ok(match system {
        SystemKind::Standalone => {
            let endpoint = Rc::new(standalone::open(site, settings)?);
            let offer = standalone::offer(&endpoint);
            let join = move |endpoint, offer: &str| standalone::join(&endpoint, offer, size_max);
            waiting(wait, endpoint, offer, join)
        }
        SystemKind::KernelUdp => {
            let bound = BoundUdp::new(site.address()?)?;
            let offer = bound.offer()?;
            waiting(wait, bound, offer, BoundUdp::connect)
        }
        // Both listen; the one that leads connects.
        SystemKind::KernelTcp => {
            let listener = TcpListener::bind((site.address()?, 0)).context("TCP")?;
            let offer = listener.local_addr()?.to_string();
            let join = move |listener: TcpListener, offer: &str| {
                let half = match leads {
                    true => Tcp::connect(offer, size_max)?,
                    false => Tcp::accept(&listener, size_max)?,
                };
                half.on_network(lossy)
            };
            waiting(wait, listener, offer, join)
        }
        SystemKind::KernelTls => {
            let listener = TcpListener::bind((site.address()?, 0)).context("TLS")?;
            let listening = Listening::new(listener)?;
            let offer = listening.offer()?;
            let join = move |listening: Listening, offer: &str| {
                let half = match leads {
                    true => Tls::connect(offer, size_max)?,
                    false => listening.accept(size_max)?,
                };
                half.on_network(lossy)
            };
            waiting(wait, listening, offer, join)
        }
        SystemKind::Ucx => Box::new(Ucx::new(site, leads)?),
        SystemKind::ShmFloor | SystemKind::ShmLine | SystemKind::ShmCopy => {
            Box::new(Floor::new(system, leads, size_max))
        }
        SystemKind::Portolan | SystemKind::RawXdp => {
            return fail("they are made by the rank's endpoint");
        }
    })
}

/// The life of a rank.
pub fn main(helper: bool, threads: Calling) -> Result<()> {
    // The launcher gave it as standard input.
    let line = std::io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .context("the line to the bench")?;
    let mut line = ControlLine::new(UnixStream::from(line));
    match obey(&mut line, helper, threads) {
        Ok(()) => Ok(()),
        // The bench says it; where it is gone, nobody wants to know.
        Err(failure) => line.say(&Answer::Failed(failure.to_string())).or(Ok(())),
    }
}

/// The life of a rank of the start bench.
pub fn first_message() -> Result<()> {
    let ours = Ours::open(true, Calling::Single)?;
    if let Some(at_ns) = ours.first_messages()? {
        print(format_args!("{MARK}{at_ns}\n"))?;
    }
    ours.close()
}

fn obey(line: &mut ControlLine, helper: bool, threads: Calling) -> Result<()> {
    let mut ours = Ours::open(helper, threads)?;
    ours.meet()?;
    line.say(&Answer::Hello {
        link: ours.link()?,
        core: core(),
    })?;
    let mut systems: HashMap<usize, Box<dyn System>> = HashMap::new();
    let mut flood = None;
    let mut circle = None;
    let mut desk = None;
    let mut connecting = Connecting::New;
    loop {
        match line.hear()? {
            Order::Prepare {
                slot,
                system,
                leads,
                wait,
                size_max,
                lossy,
                site,
                settings,
            } => {
                let mut half = match system {
                    SystemKind::Portolan => ours.system(size_max, wait)?,
                    SystemKind::RawXdp => {
                        let bound = Unmet::new(&ours, site.address()?)?;
                        let offer = bound.offer();
                        Driven::boxed(bound, offer, Unmet::meet)
                    }
                    system => prepare(system, leads, wait, size_max, lossy, &site, &settings)?,
                };
                line.say(&Answer::Offer(half.offer()?))?;
                systems.insert(slot, half);
            }
            Order::Join { slot, offer } => {
                known(&mut systems, slot)?.join(&offer)?;
                line.say(&Answer::Ready)?;
            }
            Order::Lead { slot, op, rule } => {
                let led = known(&mut systems, slot)?.lead(&op, &rule, line)?;
                line.say(&Answer::Led(led))?;
            }
            Order::Follow { slot, op } => {
                let followed = known(&mut systems, slot)?.follow(&op, line)?;
                line.say(&Answer::Followed(followed))?;
            }
            Order::Play(part) => line.say(&Answer::Played(ours.play(&part)?))?,
            Order::Drain => {
                let drained = ours.drain(line)?;
                line.say(&Answer::Drained(drained))?;
            }
            Order::Spray(part) => ours.spray(&part, line)?,
            Order::Emit(count) => line.say(&Answer::Took(ours.emit(count)?))?,
            Order::Absorb(count) => line.say(&Answer::Took(ours.absorb(count)?))?,
            Order::Idle(part) => line.say(&Answer::Rested(ours.idle(&part)?))?,
            Order::Flood(role) => flood = Some(Flood::new(&ours, role, line)?),
            Order::Turn(turn) => match &mut flood {
                Some(flood) => flood.turn(&ours, &turn, line)?,
                None => return fail("the bench began a slice before its connections"),
            },
            Order::Barriers(count) => line.say(&Answer::Took(ours.barriers(count)?))?,
            Order::Circle(site) => circle = Some(Circle::new(&ours, &site, line)?),
            Order::Rounds { system, count } => match &mut circle {
                Some(circle) => line.say(&Answer::Took(circle.rounds(&ours, system, count)?))?,
                None => return fail("the bench began a round before its connections"),
            },
            Order::Send(stream) => ours.send_stream(&stream, line)?,
            Order::Receive(stream) => ours.receive_stream(&stream, line)?,
            Order::Trickle(whom) => ours.trickle(&whom, line)?,
            Order::Exchange(slice) => {
                let exchanged = of_matched(&mut desk, &ours)?.exchange(&slice)?;
                line.say(&Answer::Exchanged(exchanged))?;
            }
            Order::Sockets { site, size_max } => {
                of_matched(&mut desk, &ours)?.connect(&site, size_max, line)?;
            }
            Order::Connect(step) => connecting.step(step, line)?,
            Order::Report => line.say(&Answer::State(ours.state()?))?,
            Order::Bye => return ours.close(),
            order @ (Order::Finish { .. } | Order::Stop | Order::Meet(_)) => {
                return fail(format!("the bench sent {order:?} outside a slice"));
            }
        }
    }
}

/// What a rank needs for matched messages, made when it is needed first.
fn of_matched<'a>(desk: &'a mut Option<Desk>, ours: &Ours) -> Result<&'a mut Desk> {
    Ok(match desk {
        Some(desk) => desk,
        none => none.insert(Desk::new(ours)?),
    })
}

fn known(
    systems: &mut HashMap<usize, Box<dyn System>>,
    slot: usize,
) -> Result<&mut Box<dyn System>> {
    systems.get_mut(&slot).ok_or_else(|| {
        Failure::new(format!(
            "the bench named system {slot}, which was never made"
        ))
    })
}

/// The core that this process is bound to, if to one.
fn core() -> Option<usize> {
    let allowed = sched_getaffinity(None).ok()?;
    let mut cores = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core));
    let first = cores.next();
    if cores.next().is_some() { None } else { first }
}
