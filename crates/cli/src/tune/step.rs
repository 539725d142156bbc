//! What ranks do over and over while they tune: messages of rank 0 and rank 1
//! to and from each other, and of all to rank 0. Each time is taken by one rank's
//! clock: hosts have no common one.

use std::sync::Arc;

use portolan::{Endpoint, Notify, OpId, Selector, TaggedOptions};
use portolan_bench::{compute_until, ours};
use portolan_hosts::failure::{Failure, Result};
use portolan_sys::clock::now_ns;
use serde::{Deserialize, Serialize};

use super::values::Values;

/// Tag of what is measured.
const MEASURED: u64 = 1;
/// Tag of words without bytes.
const WORD: u64 = 2;
/// Tag of what ranks tell rank 0 after a step.
const TOLD: u64 = 3;
/// The one who is late computes so long and, for each byte, so much longer, ns:
/// what was pushed is there by then on a line of 200 Mbit/s.
const LATER_NS: u64 = 100_000;
const LATER_NS_PER_BYTE: u64 = 50;
/// A rank that waits for nothing else sends so, before it is asked.
const ONCE: u64 = 1;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Case {
    /// To a receiver that waits: from the send until its word that all is there.
    Early(usize),
    /// To a receiver that comes late: from its call until all is there.
    Late(usize),
    /// There and back: half of it.
    Back(usize),
    /// Of all ranks to rank 0, one message of each under way: the time of all, and that
    /// of the slowest message.
    Incast(usize),
}

impl Case {
    /// Figures that it gives.
    pub const fn figures(self) -> usize {
        match self {
            Self::Early(_) | Self::Late(_) | Self::Back(_) => 1,
            Self::Incast(_) => 2,
        }
    }

    const fn size(self) -> usize {
        match self {
            Self::Early(size) | Self::Late(size) | Self::Back(size) | Self::Incast(size) => size,
        }
    }
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    pub case: Case,
    pub values: Values,
    /// How often.
    pub count: u64,
}

/// This rank's part in steps.
pub struct Stage {
    pub endpoint: Endpoint,
    bytes: Vec<u8>,
}

impl Stage {
    pub const fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            bytes: Vec::new(),
        }
    }

    /// Does a step. Gives the figures, us: of rank 0.
    pub fn step(&mut self, step: &Step) -> Result<Vec<f64>> {
        let Step {
            case,
            values,
            count,
        } = *step;
        let push = values.push();
        self.endpoint.set_push(push, push).map_err(ours)?;
        let sizes = self.endpoint.set_pull_sizes(values.window, values.chunk);
        sizes.map_err(ours)?;
        self.endpoint.set_share_min(values.share).map_err(ours)?;
        let rank = self.endpoint.rank();
        if let Case::Incast(size) = case {
            return match rank {
                0 => self.gather(size, count),
                _ => self.flood(size, count).map(|()| Vec::new()),
            };
        }
        // Written, so that the kernel has given the pages.
        self.bytes.resize(case.size(), 1);
        let mut times = Vec::new();
        for _ in 0..count {
            match rank {
                0 => times.push(self.lead(case)?),
                1 => self.follow(case)?,
                _ => {}
            }
        }
        times.sort_unstable();
        let middle = times.get(times.len() / 2);
        Ok(middle.map(|ns| *ns as f64 / 1e3).into_iter().collect())
    }

    /// A time of rank 0, ns.
    fn lead(&mut self, case: Case) -> Result<u64> {
        let start_ns = match case {
            Case::Early(_) => {
                self.hear(1)?;
                let start_ns = compute_until(now_ns() + LATER_NS);
                self.send(1)?;
                self.hear(1)?;
                start_ns
            }
            Case::Late(size) => {
                self.say(1)?;
                let start_ns = compute_until(now_ns() + LATER_NS + LATER_NS_PER_BYTE * size as u64);
                self.receive(1)?;
                start_ns
            }
            Case::Back(_) | Case::Incast(_) => {
                let start_ns = now_ns();
                self.send(1)?;
                self.receive(1)?;
                return Ok((now_ns() - start_ns) / 2);
            }
        };
        Ok(now_ns() - start_ns)
    }

    fn follow(&mut self, case: Case) -> Result<()> {
        match case {
            Case::Early(_) => {
                self.say(0)?;
                self.receive(0)?;
                self.say(0)
            }
            Case::Late(_) => {
                self.hear(0)?;
                self.send(0)
            }
            Case::Back(_) | Case::Incast(_) => {
                self.receive(0)?;
                self.send(0)
            }
        }
    }

    fn send(&self, to: u32) -> Result<()> {
        let sent = self.endpoint.send_tagged(to, MEASURED, &self.bytes);
        sent.map_err(ours)
    }

    fn receive(&mut self, from: u32) -> Result<()> {
        let Self { endpoint, bytes } = self;
        let received = endpoint.receive_tagged(&Selector::from(from, MEASURED), bytes);
        received.map(drop).map_err(ours)
    }

    fn say(&self, to: u32) -> Result<()> {
        self.endpoint.send_tagged(to, WORD, &[]).map_err(ours)
    }

    fn hear(&self, from: u32) -> Result<()> {
        let heard = (self.endpoint).receive_tagged(&Selector::from(from, WORD), &mut []);
        heard.map(drop).map_err(ours)
    }

    /// All others' messages.
    fn gather(&mut self, size: usize, count: u64) -> Result<Vec<f64>> {
        let others = 1..self.endpoint.size();
        let post = |endpoint: &Endpoint, from: u32, room: Vec<u8>| -> Result<OpId> {
            let selector = Selector::from(from, MEASURED);
            let posted = endpoint.post_receive(&selector, room, Notify::default());
            posted.map_err(ours)
        };
        let mut under_way = Vec::new();
        for from in others.clone() {
            under_way.push((from, post(&self.endpoint, from, vec![1; size])?, ONCE));
        }
        let start_ns = now_ns();
        while !under_way.is_empty() {
            let mut still = Vec::new();
            for (from, op, number) in under_way {
                let Some(ended) = self.endpoint.poll_op(op).map_err(ours)? else {
                    still.push((from, op, number));
                    continue;
                };
                ended.completion.result.map_err(|it| broken(&it))?;
                if number < count {
                    let next = post(&self.endpoint, from, ended.into_received())?;
                    still.push((from, next, number + 1));
                }
            }
            under_way = still;
            // There may be more ranks than cores.
            std::thread::yield_now();
        }
        let all_us = (now_ns() - start_ns) as f64 / 1e3;
        let mut slowest = 0;
        for from in others {
            let mut word = [0; 8];
            let told = Selector::from(from, TOLD);
            let told = self.endpoint.receive_tagged(&told, &mut word);
            told.map_err(ours)?;
            slowest = slowest.max(u64::from_le_bytes(word));
        }
        Ok(vec![all_us, slowest as f64 / 1e3])
    }

    /// One of them sends.
    fn flood(&mut self, size: usize, count: u64) -> Result<()> {
        let message: Arc<[u8]> = vec![1; size].into();
        let options = TaggedOptions {
            sync: true,
            ..TaggedOptions::default()
        };
        let mut slowest = 0;
        for _ in 0..count {
            let start_ns = now_ns();
            let posted = (self.endpoint).post_send(0, MEASURED, &options, Arc::clone(&message));
            let op = posted.map_err(|(error, _)| ours(error))?;
            let ended = self.endpoint.wait_end(op, None).map_err(ours)?;
            ended.completion.result.map_err(|it| broken(&it))?;
            slowest = slowest.max(now_ns() - start_ns);
        }
        let word = u64::to_le_bytes(slowest);
        self.endpoint.send_tagged(0, TOLD, &word).map_err(ours)
    }
}

fn broken(error: &impl std::fmt::Debug) -> Failure {
    Failure::new(format!("a message ended so: {error:?}"))
}

/// Bytes that rank 0 tells another rank, or hears of it.
pub const ORDERS: u64 = 4;
/// Likewise, the other way.
pub const ANSWERS: u64 = 5;
/// Longest of either.
const ORDER_BYTES_MAX: usize = 64 << 10;

/// Says something of any kind to a rank.
pub fn send_json(endpoint: &Endpoint, to: u32, tag: u64, what: &impl Serialize) -> Result<()> {
    let text = serde_json::to_vec(what)?;
    endpoint.send_tagged(to, tag, &text).map_err(ours)
}

/// Hears it.
pub fn heard<T: serde::de::DeserializeOwned>(
    endpoint: &Endpoint,
    from: u32,
    tag: u64,
) -> Result<T> {
    let mut room = vec![0; ORDER_BYTES_MAX];
    let done = endpoint
        .receive_tagged(&Selector::from(from, tag), &mut room)
        .map_err(ours)?;
    Ok(serde_json::from_slice(&room[..done.bytes as usize])?)
}
