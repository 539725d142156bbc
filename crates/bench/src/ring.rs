//! A token of 8 bytes that goes round all ranks, which wait for it in blocking
//! calls: what a hop takes where ranks, and others' programs, share cores.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use portolan::Binding;
use portolan_boot::launch::{JobSpec, RANKS_MAX};
use portolan_hosts::failure::{Context, Result, fail};
use portolan_hosts::lab::Lab;
use portolan_sys::clock::now_ns;

use super::asleep::{Asleep, Sleeps};
use super::busy::Busy;
use super::conduct::{Progress, hear, introduce, unexpected};
use super::control::{ANSWER_BYTES, Answer, Line, Order, SystemKind};
use super::drive::Channel;
use super::kernel::Tcp;
use super::loss::{Column, Loss};
use super::options::Ring;
use super::plan::{Peer, wrong};
use super::portolan::{Ours, ours};
use super::rank::Site;
use super::report::{Report, Row};
use super::slice::{OPERATIONS_MIN, SLICE_MS_MAX};
use super::stats::{Quartiles, paired};
use super::watch::Watch;
use super::{Found, check, job, through_shm};

/// The token's port.
const TOKEN: u16 = 5;
/// Most rounds of a slice.
const ROUNDS_MAX: u64 = 1_000_000;

/// A rank's places in the rings.
pub struct Circle {
    /// Tokens that have come by ours.
    came: Arc<AtomicU64>,
    taken: u64,
    /// From the rank before and to the one behind.
    from: Asleep<Tcp>,
    to: Asleep<Tcp>,
}

impl Circle {
    /// Takes its place among the ranks of `ours_`; `site` is where it is.
    pub fn new(ours_: &Ours, site: &Site, line: &mut Line) -> Result<Self> {
        let came = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&came);
        let binding = Binding::to(move |_, _| count.store(count.load(Relaxed) + 1, Relaxed));
        ours_.endpoint.bind(TOKEN, binding).map_err(ours)?;
        let listener = TcpListener::bind((site.address()?, 0)).context("TCP")?;
        line.say(&Answer::Offer(listener.local_addr()?.to_string()))?;
        let offers: Vec<String> = match line.hear()? {
            Order::Meet(offers) => offers,
            order => return fail(format!("the bench sent {order:?} instead of addresses")),
        };
        let next = next(ours_) as usize;
        let Some(offer) = offers.get(next) else {
            return fail(format!("rank {next} does not listen"));
        };
        // Connections wait to be accepted, so nobody waits for another.
        let mut to = Tcp::connect(offer, ANSWER_BYTES)?;
        let mut from = Tcp::accept(&listener, ANSWER_BYTES)?;
        to.set_sleeping(true)?;
        from.set_sleeping(true)?;
        line.say(&Answer::Ready)?;
        Ok(Self {
            came,
            taken: 0,
            from: Asleep(from),
            to: Asleep(to),
        })
    }

    /// Passes the token on `count` times; rank 0 begins. Gives the time that it
    /// took, ns.
    pub fn rounds(&mut self, ours_: &Ours, system: SystemKind, count: u64) -> Result<u64> {
        let begins = ours_.endpoint.rank() == 0;
        let start_ns = now_ns();
        for _ in 0..count {
            if begins {
                self.send(ours_, system)?;
            }
            self.wait(ours_, system)?;
            if !begins {
                self.send(ours_, system)?;
            }
        }
        Ok(now_ns() - start_ns)
    }

    fn send(&mut self, ours_: &Ours, system: SystemKind) -> Result<()> {
        if system == SystemKind::Portolan {
            let sent = (ours_.endpoint).send(next(ours_), TOKEN, &[0; ANSWER_BYTES]);
            return sent.map(drop).map_err(ours);
        }
        while !self.to.try_send(ANSWER_BYTES)? {}
        Ok(())
    }

    fn wait(&mut self, ours_: &Ours, system: SystemKind) -> Result<()> {
        if system == SystemKind::Portolan {
            let (came, taken) = (&self.came, self.taken);
            let waited = (ours_.endpoint).wait_until(|| came.load(Relaxed) > taken);
            self.taken += 1;
            return waited.map_err(ours);
        }
        while self.from.poll(ANSWER_BYTES)? == 0 {}
        Ok(())
    }
}

/// The rank behind this one.
fn next(ours_: &Ours) -> u32 {
    (ours_.endpoint.rank() + 1) % ours_.endpoint.size()
}

/// A system's slices.
struct Slices {
    system: SystemKind,
    /// Rounds of the next one.
    count: u64,
    /// Mean time of a round, us.
    values: Vec<Option<f64>>,
    n: u64,
}

/// Measures a ring of ours, and one of TCP beside it.
pub fn bench(asked: Ring) -> Result<Found> {
    let Ring {
        common,
        ranks,
        busy,
        vs,
    } = asked;
    if !(2..=RANKS_MAX).contains(&ranks) {
        return wrong(format!("-n {ranks}: a ring has 2 to {RANKS_MAX} ranks"));
    }
    if vs.iter().any(|peer| *peer != Peer::Tcp) {
        return wrong("bench ring runs beside --vs tcp only");
    }
    check(common.json.as_deref(), 2)?;
    let lab = common.lab.as_deref().map(Lab::open).transpose()?;
    let shm = through_shm(&common, lab.as_ref())?;
    let mut spec = common.spec(ranks, false, shm)?;
    let hosts = lab.as_ref().map_or(1, |lab| lab.hosts().min(ranks));
    if lab.is_some() {
        spec.hosts = JobSpec::blocks(ranks, hosts);
    }
    let sites: Vec<Site> = (spec.hosts.iter().zip(0..))
        .flat_map(|(&here, host)| {
            let site = match &lab {
                Some(lab) => Site::in_lab(lab, host),
                None => Site {
                    host: "127.0.0.1".to_owned(),
                    one_host: true,
                },
            };
            vec![site; here as usize]
        })
        .collect();
    let column = Column::busy(busy);
    let mut loops = Busy::new()?;
    loops.set(&column)?;
    let mut watch = Watch::begin(common.lab.as_deref());
    let slice_ns = common.slice_ms.unwrap_or(SLICE_MS_MAX) * 1_000_000;
    let mut systems = vec![SystemKind::Portolan];
    systems.extend((!vs.is_empty()).then_some(SystemKind::KernelTcp));
    let helpers = job::Helpers::All;
    let (link, found) = job::with_lines(spec, lab.as_ref(), helpers, &mut watch.host, |lines| {
        run(lines, &sites, &systems, common.slices(), slice_ns)
    })?;
    let setting = common.setting(link, ranks);
    let like = Row {
        metric: "latency_us".to_owned(),
        beside: column.beside(),
        wait: Some("call".to_owned()),
        method: format!(
            "mean time of a round of 8 bytes, in interleaved slices of {} ms or {OPERATIONS_MIN} rounds",
            slice_ns / 1_000_000
        ),
        ..setting.row()
    };
    let (mut rows, mut ratios) = (Vec::new(), Vec::new());
    for slices in &found {
        let seen: Vec<f64> = slices.values.iter().flatten().copied().collect();
        let row = match slices.system {
            SystemKind::Portolan => like.clone(),
            other => Row {
                system: setting.name(other),
                link: None,
                security: None,
                congestion: None,
                ..like.clone()
            },
        };
        rows.extend(Quartiles::of(&seen).map(|q| Row { n: slices.n, ..row }.with(&q)));
    }
    if let [ours, theirs] = &found[..] {
        let over = setting.name(theirs.system);
        ratios.extend(
            paired(&ours.values, &theirs.values).map(|q| like.over(&like.metric, &over).with(&q)),
        );
    }
    let report = Report {
        ratios,
        ..watch.report("ring", rows)
    };
    Ok((common.json, report))
}

/// A round gives each system a slice; the first one warms up.
fn run(
    lines: &mut [Line],
    sites: &[Site],
    systems: &[SystemKind],
    slices: usize,
    slice_ns: u64,
) -> Result<Vec<Slices>> {
    for (line, site) in lines.iter_mut().zip(sites) {
        line.say(&Order::Circle(site.clone()))?;
    }
    introduce(lines)?;
    let mut found: Vec<Slices> = (systems.iter())
        .map(|&system| Slices {
            system,
            count: OPERATIONS_MIN,
            values: Vec::new(),
            n: 0,
        })
        .collect();
    let mut progress = Progress::new(slices);
    for round in 0..=slices {
        progress.show(round);
        for it in &mut found {
            let us = circle(lines, it.system, it.count)? as f64 / 1e3 / it.count as f64;
            if round > 0 {
                it.values.push(Some(us));
                it.n += it.count;
            }
            it.count = ((slice_ns as f64 / 1e3 / us) as u64).clamp(OPERATIONS_MIN, ROUNDS_MAX);
        }
    }
    progress.done();
    Ok(found)
}

/// Sends the token round `count` times; gives the time that rank 0 saw, ns.
fn circle(lines: &mut [Line], system: SystemKind, count: u64) -> Result<u64> {
    // The others wait already when rank 0 begins.
    for line in lines.iter_mut().rev() {
        line.say(&Order::Rounds { system, count })?;
    }
    let mut elapsed = Vec::new();
    for line in lines {
        match hear(line)? {
            Answer::Met(ns) => elapsed.push(ns),
            other => return unexpected(&other),
        }
    }
    Ok(elapsed.first().copied().unwrap_or_default().max(1))
}
