//! A flood of forged packets to a rank that two ranks' traffic goes to: what
//! good traffic keeps, what the rank makes of them, and what it answers.

use portolan_hosts::failure::{Result, fail};
use portolan_hosts::lab::Lab;
use serde::{Deserialize, Serialize};

use super::conduct::{Cell, Conductor, hear, unexpected};
use super::control::{Answer, Line, Order};
use super::forger::{Flood, Forger, STRANGER};
use super::job::{Helpers, two, with_lines};
use super::loss::Column;
use super::options::Forged;
use super::plan::{Asked, Kind, Plan, wrong};
use super::portolan::{Ours, ours, payload_max};
use super::rank::Site;
use super::report::{Report, Row};
use super::stats::Quartiles;
use super::watch::Watch;
use super::{Found, check, summary, through_shm};

/// What is measured, with messages of how many bytes.
const PARTS: [(Kind, usize); 2] = [(Kind::Bandwidth, 1 << 20), (Kind::Latency, 8)];

/// What a rank knows of others, and what came to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// No stranger may change this.
    state: State,
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
struct State {
    /// The link to each rank, and how often that was started again.
    peers: Vec<(String, u32)>,
    deaths: u64,
}

impl Ours {
    /// Where this rank stands.
    pub fn standing(&self) -> Result<Standing> {
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
        Ok(Standing {
            state: State {
                peers: (0..endpoint.size()).map(peer).collect::<Result<_>>()?,
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

/// Measures a stream and round trips, with and without a flood.
pub fn bench(asked: Forged) -> Result<Found> {
    let Forged {
        common,
        per_second,
        size,
        vs,
    } = asked;
    check(common.json.as_deref(), 2)?;
    let Some(lab) = common.lab.as_deref().map(Lab::open).transpose()? else {
        return wrong(
            "bench forged needs a host for the stranger: add --lab NAME (portolan lab up NAME \
             --hosts 3 makes one)",
        );
    };
    if lab.hosts() <= STRANGER {
        return wrong(format!(
            "lab {} has {} hosts and bench forged needs three: make one with --hosts 3",
            lab.name(),
            lab.hosts()
        ));
    }
    through_shm(&common, Some(&lab))?;
    let mut watch = Watch::begin(common.lab.as_deref());
    let (mut rows, mut ratios, mut remarks) = (Vec::new(), Vec::new(), Vec::new());
    let (mut flood, mut like) = (Flood::default(), Row::default());
    for (kind, bytes) in PARTS {
        let mut plan = Plan::new(&Asked {
            vs: vs.clone(),
            ..Asked::in_lab(kind, bytes, &common)
        })?;
        plan.columns.push(Column::FORGED);
        // It listens before the ranks connect: what they say is what it knows.
        let mut forger = Forger::listen(&lab, per_second, size)?;
        let spec = common.spec(2, true, false)?;
        let measure = |lines: &mut [Line]| run(&plan, &lab, &mut forger, lines);
        let (link, found) = with_lines(spec, Some(&lab), Helpers::All, &mut watch.host, measure)?;
        let setting = common.setting(link, 2);
        let system = setting.row().system;
        rows.extend(summary::rows(&found.cells, &plan, &setting));
        ratios.extend(summary::ratios(&found.cells, &plan, &setting));
        if kind.times_each() {
            ratios.extend(summary::beside(&found.cells, &plan, &setting));
        }
        remarks.push(format!("{}, {}", kind.name(), found.remark(&system)));
        flood.add(&forger.end()?);
        like = Row {
            slices: plan.slices,
            ..setting.row()
        };
    }
    rows.extend(flood_rows(&flood, &like));
    remarks.push(format!(
        "{} forged packets, a quarter each: for connections that nobody has; for the right one, \
         with a wrong tag; connect packets of a known peer in a new life; and of nobody's",
        flood.packets
    ));
    let report = Report {
        ratios,
        remarks,
        ..watch.report("forged", rows)
    };
    Ok((common.json, report))
}

/// How fast it was, and what was answered.
fn flood_rows(flood: &Flood, like: &Row) -> [Row; 2] {
    let row = |metric: &str, value: f64, method: &str| {
        let row = Row {
            metric: metric.to_owned(),
            beside: Some("forged packets".to_owned()),
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
        row.with(&all_alike)
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
    before: Vec<Standing>,
    after: Vec<Standing>,
}

fn run(plan: &Plan, lab: &Lab, forger: &mut Forger, lines: &mut [Line]) -> Result<Outcome> {
    forger.learn()?;
    let before = standings(lines)?;
    let sites = [0, 1].map(|host| Site::in_lab(lab, host));
    let payload = Some(payload_max(lab));
    let cells = Conductor::new(plan, two(lines)?, forger, sites, payload).run()?;
    let outcome = Outcome {
        cells,
        before,
        after: standings(lines)?,
    };
    outcome.check()?;
    Ok(outcome)
}

/// The receiver first: what it has had was sent before the sender is asked.
fn standings(lines: &mut [Line]) -> Result<Vec<Standing>> {
    let mut standings = Vec::new();
    for line in lines.iter_mut().rev() {
        line.say(&Order::Tell)?;
        match hear(line)? {
            Answer::Told(standing) => standings.push(standing),
            other => return unexpected(&other),
        }
    }
    standings.reverse();
    Ok(standings)
}

impl Outcome {
    /// Nothing forged was taken for real.
    fn check(&self) -> Result<()> {
        for (rank, (before, after)) in self.before.iter().zip(&self.after).enumerate() {
            if before.state != after.state {
                return fail(format!(
                    "forged packets changed what rank {rank} knows of others: {:?} became {:?}",
                    before.state, after.state
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
        let since = |count: fn(&Standing) -> u64| {
            let of = |standings: &[Standing]| standings.last().map_or(0, count);
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

    fn outcome(change: impl FnOnce(&mut Standing, &mut Standing)) -> Outcome {
        let one = Standing {
            packets_sent: 10,
            messages_sent: 5,
            packets_received: 9,
            messages_delivered: 5,
            ..Standing::default()
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
        let found = |change: fn(&mut Standing)| outcome(|_, receiver| change(receiver)).check();
        assert!(found(|receiver| receiver.state.deaths = 1).is_err());
        assert!(found(|receiver| receiver.state.peers.push(("udp".into(), 0))).is_err());
        assert!(found(|receiver| receiver.packets_received = 11).is_err());
        assert!(found(|receiver| receiver.messages_delivered = 6).is_err());
    }
}
