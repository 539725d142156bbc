//! The time until two endpoints without a launcher have heard from each other, beside TCP and
//! TLS; and that of adding and removing peers.

use clap::Args;
use portolan_hosts::failure::Result;

use crate::conduct::{answer, expect_ready};
use crate::control::{ControlLine, Order, SystemKind};
use crate::experiment::{Experiment, Findings, Stage, rounds, wrong};
use crate::job::two;
use crate::options::{Common, Link};
use crate::peers::{tcp, tls};
use crate::ranks::standalone::Step;
use crate::report::dimensions::Dimension;
use crate::report::stats::{Quartiles, Series};
use crate::report::table::Row;

/// Ourselves, and what stands beside it.
const SYSTEMS: [SystemKind; 3] = [
    SystemKind::Standalone,
    SystemKind::KernelTcp,
    SystemKind::KernelTls,
];

/// As it was asked for.
#[derive(Args)]
pub struct Connect {
    #[command(flatten)]
    pub common: Common,
    /// Connections of a slice, one after the other; its figure is their median
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1000))]
    count: u64,
    /// Peers that are added, then removed
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    peers: u64,
}

/// Figures in the making.
#[derive(Default)]
struct Found {
    /// By system.
    connect: [Series; 3],
    open: Series,
    add: Series,
    remove: Series,
}

impl Found {
    /// Gives everything a slice.
    fn round(
        &mut self,
        asked: &Connect,
        [guest, host]: [&mut ControlLine; 2],
        counts: bool,
    ) -> Result<()> {
        for (system, series) in SYSTEMS.into_iter().zip(&mut self.connect) {
            host.say(&Order::Connect(Step::Serve(system)))?;
            expect_ready(host)?;
            guest.say(&Order::Connect(Step::Connect(system, asked.count)))?;
            let [opened, connected] = answer!(guest, Timed);
            host.say(&Order::Stop)?;
            expect_ready(host)?;
            if counts {
                keep(series, &connected, asked.count);
                if system == SystemKind::Standalone {
                    keep(&mut self.open, &opened, asked.count);
                }
            }
        }
        guest.say(&Order::Connect(Step::Peers(asked.peers)))?;
        let [added, removed] = answer!(guest, Timed);
        if counts {
            keep(&mut self.add, &added, asked.peers);
            keep(&mut self.remove, &removed, asked.peers);
        }
        Ok(())
    }
}

/// The median of a slice's times, ns, as a value in us.
fn keep(series: &mut Series, times: &[u64], n: u64) {
    let times: Vec<f64> = times.iter().map(|ns| *ns as f64 / 1e3).collect();
    if let Some(quartiles) = Quartiles::of(&times) {
        series.keep(quartiles.median, n);
    }
}

impl Experiment for Connect {
    fn run(&self, stage: &mut Stage) -> Result<Findings> {
        let common = &self.common;
        if !matches!(common.network.link, Link::Auto | Link::Udp) {
            return wrong(
                "bench connect: endpoints without a launcher go by udp: leave out --link",
            );
        }
        if common.slice_ms.is_some() {
            return wrong(
                "bench connect: a slice is --count connections long: leave out --slice-ms",
            );
        }
        let lab = stage.lab_of_two()?;
        let [common] = &common.with_links(&[Link::Udp])[..] else {
            return wrong("bench connect has one link");
        };
        let spec = common.spec(lab.as_ref(), 2)?;
        let [here, there] = [0, 1].map(|host| stage.site(host));
        let settings = common.standalone_settings(false);
        let mut found = Found::default();
        let (link, ()) = stage.job(spec, |lines| {
            let [guest, host] = two(lines)?;
            let listen = Step::Listen {
                site: there,
                settings: settings.clone(),
            };
            host.say(&Order::Connect(listen))?;
            let meet = Step::Meet {
                site: here,
                settings,
                offer: answer!(host, Offer),
            };
            guest.say(&Order::Connect(meet))?;
            expect_ready(guest)?;
            rounds(common.slices(), |counts| {
                found.round(self, [&mut *guest, &mut *host], counts)
            })
        })?;
        let setting = common.setting(link, 2);
        Ok(self.findings(&found, &setting.standalone_row()))
    }
}

impl Connect {
    fn findings(&self, found: &Found, ours: &Row) -> Findings {
        let slices = format!(
            "medians of {} connections, in turns with the others",
            self.count
        );
        let until = "until 8 bytes came back; both sides poll";
        let kernel = |name: &str| {
            let row = Row::of(name, 2);
            row.at_some(Dimension::Congestion, tcp::congestion(false))
        };
        let systems = [
            (
                ours.clone(),
                format!("a fresh endpoint, from adding the peer {until}; {slices}"),
            ),
            (
                kernel("kernel-tcp"),
                format!("from making the socket {until}; {slices}"),
            ),
            (
                kernel("kernel-tls"),
                format!("{}: from making the socket {until}; {slices}", tls::METHOD),
            ),
        ];
        let mut all = Findings::default();
        for ((row, method), series) in systems.iter().zip(&found.connect) {
            all.rows
                .extend(row.figure("connect_us", series, method.as_str()));
        }
        let [own, others @ ..] = &found.connect;
        for ((row, _), series) in systems[1..].iter().zip(others) {
            all.ratios
                .extend(ours.over("connect_us", own, &row.system, series));
        }
        let each = format!("mean of {} peers that are nowhere", self.peers);
        all.rows.extend(ours.figures([
            (
                "open_us",
                &found.open,
                "opening the endpoint, with its keys, memory and helper thread",
            ),
            ("add_peer_us", &found.add, each.as_str()),
            ("remove_peer_us", &found.remove, each.as_str()),
        ]));
        all
    }
}
