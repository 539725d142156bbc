//! A TCP-like twin: CUBIC (RFC 9438) or halving (RFC 5681) with selective
//! acknowledgements, just true enough to share a bottleneck with.

use std::collections::BTreeSet;

use crate::net::Network;

/// Bytes of a segment.
pub const SEGMENT: usize = 1448;
const ACK: usize = 24;
const RTO_MIN_NS: u64 = 200_000_000;

/// How the window answers to loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Adds one segment a round trip, halves on loss.
    Aimd,
    /// Grows with the cube of the time since the last loss.
    Cubic,
}

/// A sender that always has data, and its receiver.
#[derive(Clone, Debug)]
pub struct Tcp {
    rule: Rule,
    from: usize,
    to: usize,
    /// Congestion window, segments.
    window: f64,
    threshold: f64,
    next: u64,
    /// Sent and not known to have arrived, with the time of sending.
    flying: Vec<(u64, u64)>,
    lost: BTreeSet<u64>,
    /// Losses below this belong to an event that was answered.
    recover: u64,
    window_max: f64,
    epoch: u64,
    srtt: f64,
    rttvar: f64,
    highest: u64,
    timer: u64,
    backoff: u32,
    // Receiver.
    seen: BTreeSet<u64>,
    /// Segments received, each once.
    pub received: u64,
}

impl Tcp {
    /// A flow between two nodes.
    #[must_use]
    pub fn new(rule: Rule, from: usize, to: usize) -> Self {
        Self {
            rule,
            from,
            to,
            window: 10.0,
            threshold: f64::MAX,
            next: 0,
            flying: Vec::new(),
            lost: BTreeSet::new(),
            recover: 0,
            window_max: 0.0,
            epoch: 0,
            srtt: 0.0,
            rttvar: 0.0,
            highest: 0,
            timer: u64::MAX,
            backoff: 0,
            seen: BTreeSet::new(),
            received: 0,
        }
    }

    /// Payload bytes that have arrived.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.received * SEGMENT as u64
    }

    /// When its timer fires.
    #[must_use]
    pub fn next_time(&self) -> u64 {
        self.timer
    }

    /// Takes what arrived at either end and sends what the window allows.
    pub fn run(&mut self, net: &mut Network) {
        let now = net.now();
        while let Some(packet) = net.receive(self.to) {
            let number = word(&packet.bytes, 0);
            if self.seen.insert(number) {
                self.received += 1;
            }
            let mut ack = [0; ACK];
            ack[..16].copy_from_slice(&packet.bytes[..16]);
            net.send(self.to, self.from, &ack, false);
        }
        while let Some(packet) = net.receive(self.from) {
            self.acknowledged(now, word(&packet.bytes, 0), word(&packet.bytes, 1));
        }
        if self.timer <= now {
            self.timed_out(now);
        }
        while (self.flying.len() as f64) < self.window {
            let number = self.lost.pop_first().unwrap_or_else(|| {
                self.next += 1;
                self.next - 1
            });
            let mut segment = [0; SEGMENT];
            segment[..8].copy_from_slice(&number.to_le_bytes());
            segment[8..16].copy_from_slice(&now.to_le_bytes());
            self.flying.push((number, now));
            net.send(self.from, self.to, &segment, false);
            if self.timer == u64::MAX {
                self.timer = now + self.rto();
            }
        }
    }

    fn rto(&self) -> u64 {
        let rto = if self.srtt == 0.0 {
            1e9
        } else {
            self.srtt + 4.0 * self.rttvar
        };
        (rto as u64).max(RTO_MIN_NS) << self.backoff.min(6)
    }

    fn acknowledged(&mut self, now: u64, number: u64, sent_at: u64) {
        let Some(at) = self.flying.iter().position(|f| f.0 == number) else {
            self.lost.remove(&number);
            return;
        };
        self.flying.remove(at);
        self.backoff = 0;
        let rtt = (now - sent_at) as f64;
        if self.srtt == 0.0 {
            (self.srtt, self.rttvar) = (rtt, rtt / 2.0);
        } else {
            self.rttvar += ((rtt - self.srtt).abs() - self.rttvar) / 4.0;
            self.srtt += (rtt - self.srtt) / 8.0;
        }
        self.timer = if self.flying.is_empty() {
            u64::MAX
        } else {
            now + self.rto()
        };
        self.highest = self.highest.max(sent_at);
        // Three later transmissions arrived: lost.
        let before: Vec<u64> = self.flying[..at].iter().map(|f| f.0).collect();
        let sure = before.len().saturating_sub(3);
        if at >= 3 {
            for &n in &before[..sure] {
                self.lost.insert(n);
                self.flying.retain(|f| f.0 != n);
                if n >= self.recover {
                    self.recover = self.next;
                    self.shrink(now);
                }
            }
        }
        self.grow(now);
    }

    fn grow(&mut self, now: u64) {
        if self.window < self.threshold {
            self.window += 1.0;
            return;
        }
        let reno = self.window + 1.0 / self.window;
        self.window = match self.rule {
            Rule::Aimd => reno,
            Rule::Cubic => {
                let t = (now - self.epoch) as f64 / 1e9;
                let k = (self.window_max * 0.3 / 0.4).cbrt();
                let target = 0.4 * (t - k).powi(3) + self.window_max;
                let step = ((target - self.window) / self.window).clamp(0.0, 0.5);
                reno.max(self.window + step)
            }
        };
    }

    fn shrink(&mut self, now: u64) {
        let keep = match self.rule {
            Rule::Aimd => 0.5,
            Rule::Cubic => 0.7,
        };
        self.window_max = self.window;
        self.epoch = now;
        self.window = (self.window * keep).max(2.0);
        self.threshold = self.window;
    }

    fn timed_out(&mut self, now: u64) {
        self.shrink(now);
        self.window = 1.0;
        self.backoff += 1;
        self.recover = self.next;
        self.lost.extend(self.flying.drain(..).map(|f| f.0));
        self.timer = u64::MAX;
    }
}

fn word(bytes: &[u8], index: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[8 * index..8 * index + 8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::Pipe;

    /// Megabits a second of two flows over one 200 Mbit/s bottleneck.
    fn share(rules: [Rule; 2], loss: u32) -> [f64; 2] {
        let mut net = Network::new(1, 4);
        // Both receivers sit behind one cable.
        net.set_host(3, 2);
        net.down[2] = Pipe::new(200_000_000, 65_536);
        for (from, to) in [(0, 2), (1, 3), (2, 0), (3, 1)] {
            net.faults_mut(from, to).delay_ns = 100_000;
        }
        net.faults_mut(0, 2).loss = loss;
        let mut flows = [Tcp::new(rules[0], 0, 2), Tcp::new(rules[1], 1, 3)];
        let end = 4_000_000_000;
        while net.now() < end {
            for flow in &mut flows {
                flow.run(&mut net);
            }
            let timers = flows.iter().map(Tcp::next_time).min().unwrap_or(u64::MAX);
            net.advance(net.next_time().unwrap_or(u64::MAX).min(timers));
        }
        flows.map(|f| f.bytes() as f64 * 8.0 / (end as f64 / 1e9) / 1e6)
    }

    #[test]
    fn twins_fill_and_share_a_bottleneck() {
        for rule in [Rule::Aimd, Rule::Cubic] {
            let [a, b] = share([rule; 2], 0);
            assert!(a + b > 150.0, "{rule:?}: {a} + {b}");
            assert!(a > 40.0 && b > 40.0, "{rule:?}: {a} {b}");
        }
    }

    #[test]
    fn random_loss_hurts_it() {
        let [lossy, clean] = share([Rule::Cubic; 2], 100_000);
        assert!(lossy * 3.0 < clean, "{lossy} {clean}");
    }
}
