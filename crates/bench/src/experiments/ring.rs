//! A token of 8 bytes that goes round all ranks, which wait for it in blocking
//! calls: what a hop takes where ranks, and others' programs, share cores.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use clap::Args;
use portolan::Binding;
use portolan_boot::launch::RANKS_MAX;
use portolan_hosts::failure::{Context, Result, fail};
use portolan_sys::clock::now_ns;

use crate::busy::{self, Busy};
use crate::conduct::{introduce, took};
use crate::control::{ANSWER_BYTES, Answer, ControlLine, Order, SystemKind};
use crate::experiment::{Experiment, Findings, Stage, wrong};
use crate::experiments::contest::{contest, findings};
use crate::loss::{Column, Loss};
use crate::options::{Common, check_tcp_only};
use crate::peers::tcp::Tcp;
use crate::plan::Peer;
use crate::ranks::asleep::{Asleep, Sleeps};
use crate::ranks::drive::Channel;
use crate::ranks::portolan::{Ours, ours};
use crate::ranks::rank::Site;
use crate::report::dimensions::Dimension;
use crate::report::summary::KERNEL_TCP;
use crate::report::table::Row;
use crate::slice::OPERATIONS_MIN;

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
    pub fn new(ours_: &Ours, site: &Site, line: &mut ControlLine) -> Result<Self> {
        let came = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&came);
        let binding = Binding::to(move |_, _| count.store(count.load(Relaxed) + 1, Relaxed));
        ours_.endpoint.bind(TOKEN, binding).map_err(ours)?;
        let listener = TcpListener::bind((site.address()?, 0)).context("TCP")?;
        let offers = line.meet(listener.local_addr()?.to_string())?;
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

/// Reads the number of loops. Other benches take several.
fn one_number(text: &str) -> std::result::Result<u32, String> {
    let number = text.parse().ok();
    let number = number.filter(|it| i64::from(*it) <= busy::LOOPS_MAX);
    number.ok_or_else(|| format!("bench ring takes one number, 0 to {}", busy::LOOPS_MAX))
}

/// As it was asked for.
#[derive(Args)]
pub struct Ring {
    #[command(flatten)]
    pub common: Common,
    /// Number of ranks
    #[arg(short = 'n', long, value_name = "N", default_value_t = 6)]
    ranks: u32,
    /// Busy loops on each core beside the ranks: one number, 0 to 8
    #[arg(
        long,
        value_name = "LOOPS",
        default_value_t = 0,
        value_parser = one_number
    )]
    busy: u32,
    /// Peers to benchmark against in the same run: tcp
    #[arg(long, value_enum, value_name = "PEER", value_delimiter = ',')]
    vs: Vec<Peer>,
}

impl Experiment for Ring {
    fn run(&self, stage: &mut Stage) -> Result<Findings> {
        let Self { common, vs, .. } = self;
        let ranks = self.ranks;
        if !(2..=RANKS_MAX).contains(&ranks) {
            return wrong(format!("-n {ranks}: a ring has 2 to {RANKS_MAX} ranks"));
        }
        check_tcp_only("ring", vs)?;
        let spec = common.spec(stage.lab.as_ref(), ranks)?;
        let hosts = spec.hosts.iter().zip(0..);
        let sites: Vec<Site> = hosts
            .flat_map(|(&here, host)| vec![stage.site(host); here as usize])
            .collect();
        let column = Column::busy(self.busy);
        let mut loops = Busy::new()?;
        loops.set(&column)?;
        let slice_ns = common.whole_slice_ns();
        let kinds = [SystemKind::Portolan, SystemKind::KernelTcp];
        let kinds = &kinds[..1 + usize::from(!vs.is_empty())];
        let (link, all) = stage.job(spec, |lines| {
            for (line, site) in lines.iter_mut().zip(&sites) {
                line.say(&Order::Circle(site.clone()))?;
            }
            introduce(lines)?;
            let (times, bounds) = ((common.slices(), slice_ns), OPERATIONS_MIN..=ROUNDS_MAX);
            contest(kinds.len(), times, bounds, |place, count| {
                // The others wait already when rank 0 begins.
                let system = kinds[place];
                for line in lines.iter_mut().rev() {
                    line.say(&Order::Rounds { system, count })?;
                }
                Ok((took(lines)? as f64 / 1e3 / count as f64, count))
            })
        })?;
        let ours = common.setting(link, ranks).row();
        let systems = [ours, Row::of(KERNEL_TCP, ranks)].map(|row| {
            let row = row.at_some(Dimension::Beside, column.beside());
            let method = format!(
                "mean time of a round of 8 bytes, in interleaved slices of {} ms or {OPERATIONS_MIN} rounds",
                slice_ns / 1_000_000
            );
            (row.at(Dimension::Wait, "call"), method)
        });
        Ok(findings("latency_us", &systems[..kinds.len()], &all))
    }
}
