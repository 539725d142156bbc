//! A flood of forged packets to a rank that two ranks' traffic goes to: what
//! good traffic keeps, what the rank makes of them, and what it answers.

use clap::Args;
use portolan_hosts::choices::bytes;
use portolan_hosts::failure::{Result, fail};
use portolan_hosts::lab::Lab;
use serde::{Deserialize, Serialize};

use crate::conduct::{Cell, Conductor, answer};
use crate::control::{ControlLine, Order};
use crate::experiment::{Experiment, Findings, Stage};
use crate::experiments::paired::Paired;
use crate::job::two;
use crate::loss::Column;
use crate::options::{Common, Measure};
use crate::peers::forger::{Flood, Forger, STRANGER};
use crate::plan::{Kind, Peer, Plan, Whereabouts};
use crate::ranks::portolan::{Ours, ours, payload_max};
use crate::ranks::rank::Site;
use crate::report::dimensions::Dimension;
use crate::report::stats::Quartiles;
use crate::report::summary;
use crate::report::table::Row;

/// What is measured, with messages of how many bytes.
const PARTS: [(Kind, usize); 2] = [(Kind::Bandwidth, 1 << 20), (Kind::Latency, 8)];

/// What a rank knows of others, and what came to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankState {
    /// No stranger may change this.
    peers: Peers,
    /// Packets sent, and those of others that verified.
    packets_sent: u64,
    packets_received: u64,
    /// Messages sent to others by the network, and those delivered.
    messages_sent: u64,
    messages_delivered: u64,
    /// Packets dropped by the endpoint: nobody's connection, a wrong tag, all
    /// other reasons.
    unknown: u64,
    bad_tag: u64,
    otherwise: u64,
    /// Packets dropped before, by the program of its host port.
    filtered: u64,
}

/// Who the others are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Peers {
    /// The link to each rank, and how often that was started again.
    links: Vec<(String, u32)>,
    deaths: u64,
}

impl Ours {
    /// What this rank knows of others, and what came to it.
    pub fn state(&self) -> Result<RankState> {
        let endpoint = &self.endpoint;
        let counters = endpoint.counters().map_err(ours)?;
        let filtered = endpoint.with_host_port(|link| {
            let gate = link.gate().counters();
            gate.bad_version + gate.malformed + gate.unknown
        });
        let peer = |rank| {
            let (link, _why) = endpoint.lane(rank).map_err(ours)?;
            Ok((link.to_owned(), endpoint.restarts(rank).map_err(ours)?))
        };
        let protocol = counters.protocol;
        let drops = protocol.drops;
        Ok(RankState {
            peers: Peers {
                links: (0..endpoint.size()).map(peer).collect::<Result<_>>()?,
                deaths: counters.deaths,
            },
            packets_sent: protocol.packets_sent,
            packets_received: protocol.packets_received,
            messages_sent: protocol.messages_sent,
            messages_delivered: protocol.messages_delivered,
            unknown: drops.unknown,
            bad_tag: drops.bad_tag,
            otherwise: drops.total() - drops.unknown - drops.bad_tag,
            filtered: filtered.map_err(ours)?.unwrap_or(0),
        })
    }
}

/// As it was asked for.
#[derive(Args)]
pub struct Forged {
    #[command(flatten)]
    pub common: Common,
    /// Forged packets per second
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    per_second: u64,
    /// Size of a forged packet, bytes; connect packets always have 116
    #[arg(long, value_name = "BYTES", default_value_t = 100, value_parser = forged_size)]
    size: usize,
    /// Peers to benchmark against under the same flood: udp, tcp
    #[arg(long, value_enum, value_name = "PEER[,PEER...]", value_delimiter = ',')]
    vs: Vec<Peer>,
}

/// Reads the size of a forged packet: at least that of ours, in one piece.
fn forged_size(text: &str) -> std::result::Result<usize, String> {
    match bytes(text) {
        Ok(size @ 28..=1_232) => Ok(size),
        _ => Err("give 28 to 1232 bytes: a packet without its headers".to_owned()),
    }
}

impl Experiment for Forged {
    /// A stream and round trips, with and without a flood.
    fn run(&self, stage: &mut Stage) -> Result<Findings> {
        let Self {
            common,
            per_second,
            size,
            vs,
        } = self;
        let lab = stage.needs_lab(STRANGER + 1, "needs a host for the stranger", "--hosts 3")?;
        let mut all = Findings::default();
        let (mut flood, mut row) = (Flood::default(), Row::default());
        for (kind, bytes) in PARTS {
            let measure = Measure {
                common: common.clone(),
                size: Some(bytes),
                vs: vs.clone(),
                ..Measure::default()
            };
            let asked = Paired {
                kind,
                pattern: None,
                measure,
            };
            let at = Whereabouts {
                shm: false,
                lab: true,
            };
            let mut plan = Plan::new(&asked, at)?;
            plan.columns.push(Column::FORGED);
            // It listens before the ranks connect: what they say is what it knows.
            let mut forger = Forger::listen(&lab, *per_second, *size)?;
            let spec = common.spec(Some(&lab), 2)?;
            let sites = [0, 1].map(|host| stage.site(host));
            let measure = |lines: &mut [ControlLine]| run(&plan, &lab, sites, &mut forger, lines);
            let (link, found) = stage.job(spec, measure)?;
            let setting = common.setting(link, 2);
            row = Row {
                slices: plan.slices,
                ..setting.row()
            };
            all.extend(summary::findings(&found.cells, &plan, &setting));
            if kind.times_each() {
                all.ratios
                    .extend(summary::beside(&found.cells, &plan, &setting));
            }
            all.remarks
                .push(format!("{}, {}", kind.name(), found.remark(&row.system)));
            flood.add(&forger.end()?);
        }
        all.rows.extend(flood_rows(&flood, &row));
        all.remarks.push(format!(
            "{} forged packets, a quarter each: for connections that nobody has; for the right one, \
             with a wrong tag; connect packets of a known peer in a new life; and of nobody's",
            flood.packets
        ));
        Ok(all)
    }
}

/// How fast it was, and what was answered.
fn flood_rows(flood: &Flood, like: &Row) -> [Row; 2] {
    let row = |metric: &str, value: f64, method: &str| {
        let row = Row {
            metric: metric.to_owned(),
            n: flood.packets,
            method: method.to_owned(),
            ..like.clone()
        };
        let all_alike = Quartiles {
            q1: value,
            median: value,
            q3: value,
            count: like.slices,
        };
        row.at(Dimension::Beside, "forged packets").with(&all_alike)
    };
    [
        row(
            "forged_packets_s",
            flood.per_second(),
            "sent by a third host to the receiver's port while the flood lasted",
        ),
        row(
            "answered_share",
            flood.answered(),
            "bytes that came to that host's interface / bytes that left it, all the time",
        ),
    ]
}

/// What came of a part: figures, and where the ranks stood before and after.
struct Outcome {
    cells: Vec<Cell>,
    /// By rank.
    before: Vec<RankState>,
    after: Vec<RankState>,
}

fn run(
    plan: &Plan,
    lab: &Lab,
    sites: [Site; 2],
    forger: &mut Forger,
    lines: &mut [ControlLine],
) -> Result<Outcome> {
    forger.learn()?;
    let before = states(lines)?;
    let payload = Some(payload_max(lab));
    let cells = Conductor::new(plan, two(lines)?, forger, sites, payload).run()?;
    let outcome = Outcome {
        cells,
        before,
        after: states(lines)?,
    };
    outcome.check()?;
    Ok(outcome)
}

/// The receiver first: what it has had was sent before the sender is asked.
fn states(lines: &mut [ControlLine]) -> Result<Vec<RankState>> {
    let mut states = Vec::new();
    for line in lines.iter_mut().rev() {
        line.say(&Order::Report)?;
        states.push(answer!(line, State));
    }
    states.reverse();
    Ok(states)
}

impl Outcome {
    /// Nothing forged was taken for real.
    fn check(&self) -> Result<()> {
        for (rank, (before, after)) in self.before.iter().zip(&self.after).enumerate() {
            if before.peers != after.peers {
                return fail(format!(
                    "forged packets changed what rank {rank} knows of others: {:?} became {:?}",
                    before.peers, after.peers
                ));
            }
        }
        let [sender, receiver] = &self.after[..] else {
            return fail("two ranks are flooded");
        };
        if receiver.packets_received > sender.packets_sent {
            return fail(format!(
                "{} packets verified at the receiver, of {} that were sent",
                receiver.packets_received, sender.packets_sent
            ));
        }
        if receiver.messages_delivered != sender.messages_sent {
            return fail(format!(
                "{} messages were sent and {} delivered",
                sender.messages_sent, receiver.messages_delivered
            ));
        }
        Ok(())
    }

    fn remark(&self, system: &str) -> String {
        let since = |count: fn(&RankState) -> u64| {
            let of = |states: &[RankState]| states.last().map_or(0, count);
            of(&self.after) - of(&self.before)
        };
        format!(
            "{system}: no peer made or changed, no message more or less; packets dropped for \
             their tag {}, for their connection {}, otherwise {}, before they reached the rank {}",
            since(|s| s.bad_tag),
            since(|s| s.unknown),
            since(|s| s.otherwise),
            since(|s| s.filtered)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(change: impl FnOnce(&mut RankState, &mut RankState)) -> Outcome {
        let one = RankState {
            packets_sent: 10,
            messages_sent: 5,
            packets_received: 9,
            messages_delivered: 5,
            ..RankState::default()
        };
        let (mut sender, mut receiver) = (one.clone(), one.clone());
        change(&mut sender, &mut receiver);
        Outcome {
            cells: Vec::new(),
            before: vec![one.clone(), one],
            after: vec![sender, receiver],
        }
    }

    #[test]
    fn what_a_stranger_changes_is_found() {
        outcome(|_, receiver| receiver.bad_tag = 7).check().unwrap();
        let found = |change: fn(&mut RankState)| outcome(|_, receiver| change(receiver)).check();
        assert!(found(|receiver| receiver.peers.deaths = 1).is_err());
        assert!(found(|receiver| receiver.peers.links.push(("udp".into(), 0))).is_err());
        assert!(found(|receiver| receiver.packets_received = 11).is_err());
        assert!(found(|receiver| receiver.messages_delivered = 6).is_err());
    }
}
