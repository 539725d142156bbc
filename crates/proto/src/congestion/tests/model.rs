//! One bottleneck, packet by packet: a FIFO of some bytes, a rate, a base
//! round trip, random loss, marks, late hosts. Flows are ours, or a TCP twin
//! written apart from the code under test (CUBIC in floating point).

extern crate std;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::vec::Vec;

use crate::congestion::{AckSample, Congestion, Mode, Pacer, Rtt};

pub const PACKET: u32 = 1_400;
pub const WINDOW_MAX: u32 = 512;
/// Packets that the receiver grants.
pub const GRANT: u32 = 184;
pub const US: u64 = 1_000;
pub const MS: u64 = 1_000_000;
pub const S: u64 = 1_000_000_000;

/// The twin's receive window, packets.
const TWIN_MAX: f64 = 1_024.0;

/// Path between sender and receiver.
#[derive(Clone, Copy)]
pub struct Link {
    /// Bytes/s of the bottleneck.
    pub rate: u64,
    /// Buffer of the bottleneck, bytes.
    pub buffer: u64,
    /// Round trip without a queue, ns.
    pub base: u64,
    /// Bytes/s of the senders' own interfaces.
    pub nic: u64,
    /// Random losses per thousand, in both directions.
    pub loss: u64,
    /// Backlog from which packets are marked, bytes.
    pub mark: u64,
    pub noise: Noise,
}

/// Delay that the hosts add to acknowledgements.
#[derive(Clone, Copy, PartialEq)]
pub enum Noise {
    None,
    /// Up to this many ns each time, and a pause of 1 ms each 7 ms.
    Spikes(u64),
    /// The receiver runs only the first number of ns in each period of the second.
    Slices(u64, u64),
}

impl Link {
    pub fn mbit(rate: u64, buffer: u64, base: u64) -> Self {
        Self {
            rate: rate * 125_000,
            buffer,
            base,
            nic: 1_250_000_000.max(rate * 500_000),
            loss: 0,
            mark: u64::MAX,
            noise: Noise::None,
        }
    }

    pub fn lossy(self, loss: u64) -> Self {
        Self { loss, ..self }
    }
}

/// Floating-point CUBIC with its Reno-friendly part and slow start.
pub struct Twin {
    window: f64,
    threshold: f64,
    peak: f64,
    reno: f64,
    epoch: Option<u64>,
    recover_until: u64,
}

impl Twin {
    fn new() -> Self {
        Self {
            window: 10.0,
            threshold: f64::MAX,
            peak: 0.0,
            reno: 0.0,
            epoch: None,
            recover_until: 0,
        }
    }

    fn on_ack(&mut self, now: u64, acked: u32, lost: u32, largest: u64, next: u64) {
        let recovering = largest < self.recover_until;
        if lost > 0 && !recovering {
            self.peak = self.window;
            self.window = (self.window * 0.7).max(2.0);
            self.threshold = self.window;
            self.recover_until = next;
            self.epoch = None;
        } else if !recovering && self.window < self.threshold {
            self.window += f64::from(acked);
        } else if !recovering {
            if self.epoch.is_none() {
                self.reno = self.window;
            }
            let epoch = *self.epoch.get_or_insert(now);
            let t = (now - epoch) as f64 / 1e9;
            let k = ((self.peak - self.window).max(0.0) / 0.4).cbrt();
            let cubic = 0.4 * (t - k).powi(3) + self.peak;
            self.reno += 0.529 * f64::from(acked) / self.window;
            let target = cubic.clamp(self.window, 1.5 * self.window);
            self.window += (target - self.window) / self.window * f64::from(acked);
            self.window = self.window.max(self.reno).min(TWIN_MAX);
        }
    }
}

#[expect(clippy::large_enum_variant, reason = "a test has a few of them")]
pub enum Control {
    Ours(Congestion, Pacer),
    Twin(Twin),
    /// A window that nothing changes.
    Fixed(u32),
}

struct Sent {
    number: u64,
    at: u64,
}

#[derive(Clone, Copy)]
struct Heard {
    number: u64,
    /// Arrived, or found missing.
    arrived: bool,
    marked: bool,
}

pub struct Flow {
    pub control: Control,
    rtt: Rtt,
    start: u64,
    stop: u64,
    next: u64,
    since_ask: u32,
    sent: VecDeque<Sent>,
    nic_free: u64,
    probe_at: u64,
    backoff: u8,
    wake_at: u64,
    last_ack_at: u64,
    expected: u64,
    heard: Vec<Heard>,
    heard_at: u64,
    /// Bytes that arrived.
    pub arrived: u64,
    pub packets: u64,
    pub lost: u64,
}

enum Event {
    Start,
    Enter {
        number: u64,
        bytes: u32,
        ask: bool,
    },
    Arrive {
        number: u64,
        bytes: u32,
        ask: bool,
        marked: bool,
    },
    Ack(Vec<Heard>),
    Probe,
    Wake,
}

struct Scheduled {
    at: u64,
    order: u64,
    flow: usize,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

pub struct Net {
    pub link: Link,
    pub flows: Vec<Flow>,
    now: u64,
    free_at: u64,
    order: u64,
    random: u64,
    events: BinaryHeap<Reverse<Scheduled>>,
    /// Packets dropped for want of room.
    pub drops: u64,
    /// Sum of the backlogs that packets met, bytes, and their number.
    pub backlog_sum: u64,
    pub backlog_count: u64,
}

impl Net {
    pub fn new(link: Link, seed: u64) -> Self {
        Self {
            link,
            flows: Vec::new(),
            now: 0,
            free_at: 0,
            order: 0,
            random: seed,
            events: BinaryHeap::new(),
            drops: 0,
            backlog_sum: 0,
            backlog_count: 0,
        }
    }

    pub fn ours(&mut self, mode: Mode, window_max: u32, start: u64, stop: u64) {
        let congestion = Congestion::new(mode, PACKET as u16, window_max);
        self.add(Control::Ours(congestion, Pacer::new()), start, stop);
    }

    pub fn twin(&mut self, start: u64, stop: u64) {
        self.add(Control::Twin(Twin::new()), start, stop);
    }

    pub fn fixed(&mut self, window: u32) {
        self.add(Control::Fixed(window), 0, u64::MAX);
    }

    fn add(&mut self, control: Control, start: u64, stop: u64) {
        self.flows.push(Flow {
            control,
            rtt: Rtt::new(),
            start,
            stop,
            next: 0,
            since_ask: 0,
            sent: VecDeque::new(),
            nic_free: 0,
            probe_at: 0,
            backoff: 0,
            wake_at: u64::MAX,
            last_ack_at: 0,
            expected: 0,
            heard: Vec::new(),
            heard_at: 0,
            arrived: 0,
            packets: 0,
            lost: 0,
        });
        self.schedule(start, self.flows.len() - 1, Event::Start);
    }

    /// Forgets what was counted, for a measurement after the start-up.
    pub fn reset(&mut self) {
        self.drops = 0;
        self.backlog_sum = 0;
        self.backlog_count = 0;
        for flow in &mut self.flows {
            flow.arrived = 0;
            flow.packets = 0;
            flow.lost = 0;
        }
    }

    pub fn run(&mut self, until: u64) {
        while let Some(Reverse(next)) = self.events.peek() {
            if next.at > until {
                break;
            }
            let Reverse(next) = self.events.pop().unwrap();
            self.now = next.at;
            self.handle(next.flow, next.event);
        }
        self.now = until;
    }

    /// Share of the bottleneck that flow `i` had over `time` ns, in percent.
    pub fn percent(&self, i: usize, time: u64) -> u64 {
        let full = u128::from(self.link.rate) * u128::from(time) / u128::from(S);
        (u128::from(self.flows[i].arrived) * 100 / full) as u64
    }

    /// The mean delay in the queue, ns.
    pub fn queue_ns(&self) -> u64 {
        let mean = self.backlog_sum / self.backlog_count.max(1);
        (u128::from(mean) * u128::from(S) / u128::from(self.link.rate)) as u64
    }

    pub fn window(&self, i: usize) -> u32 {
        match &self.flows[i].control {
            Control::Ours(congestion, _) => congestion.window(),
            Control::Twin(twin) => twin.window as u32,
            Control::Fixed(window) => *window,
        }
    }

    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn schedule(&mut self, at: u64, flow: usize, event: Event) {
        self.order += 1;
        let order = self.order;
        self.events.push(Reverse(Scheduled {
            at,
            order,
            flow,
            event,
        }));
    }

    fn handle(&mut self, i: usize, event: Event) {
        match event {
            Event::Start => self.send(i),
            Event::Wake => {
                if self.flows[i].wake_at == self.now {
                    self.flows[i].wake_at = u64::MAX;
                    self.send(i);
                }
            }
            Event::Probe => self.probe(i),
            Event::Enter { number, bytes, ask } => self.enter(i, number, bytes, ask),
            Event::Arrive {
                number,
                bytes,
                ask,
                marked,
            } => {
                self.arrive(i, number, bytes, ask, marked);
            }
            Event::Ack(heard) => self.acked(i, &heard),
        }
    }

    fn send(&mut self, i: usize) {
        let now = self.now;
        loop {
            let granted = match &self.flows[i].control {
                Control::Ours(congestion, _) if congestion.mode() == Mode::Shared => u32::MAX,
                Control::Twin(_) => u32::MAX,
                _ => GRANT,
            };
            let window = self.window(i).min(granted);
            let flow = &mut self.flows[i];
            let in_flight = flow.sent.len() as u32;
            if now < flow.start || now >= flow.stop || in_flight >= window {
                break;
            }
            if let Control::Ours(_, pacer) = &flow.control {
                let ready = pacer.ready_at(now);
                if ready > now {
                    if flow.wake_at > ready {
                        flow.wake_at = ready;
                        self.schedule(ready, i, Event::Wake);
                    }
                    break;
                }
            }
            flow.since_ask += 1;
            let ask = flow.since_ask >= (window / 2).max(1) || in_flight + 1 >= window;
            self.transmit(i, PACKET, ask);
        }
        self.set_probe(i);
    }

    fn transmit(&mut self, i: usize, bytes: u32, ask: bool) {
        let now = self.now;
        let link = self.link;
        let flow = &mut self.flows[i];
        let number = flow.next;
        flow.next += 1;
        flow.packets += 1;
        if ask {
            flow.since_ask = 0;
        }
        flow.sent.push_back(Sent { number, at: now });
        let in_flight = flow.sent.len() as u32;
        let ask = match &mut flow.control {
            Control::Ours(congestion, pacer) => {
                congestion.on_sent(now, bytes, in_flight);
                pacer.sent(now, bytes);
                ask
            }
            Control::Twin(_) => true,
            Control::Fixed(_) => ask,
        };
        flow.nic_free = flow.nic_free.max(now) + u64::from(bytes) * S / link.nic;
        let at = flow.nic_free;
        self.schedule(at, i, Event::Enter { number, bytes, ask });
    }

    /// A packet meets the bottleneck's queue.
    fn enter(&mut self, i: usize, number: u64, bytes: u32, ask: bool) {
        let (now, link) = (self.now, self.link);
        let backlog = self.free_at.saturating_sub(now) * link.rate / S;
        self.backlog_sum += backlog;
        self.backlog_count += 1;
        if backlog + u64::from(bytes) > link.buffer {
            self.drops += 1;
            return;
        }
        self.free_at = self.free_at.max(now) + u64::from(bytes) * S / link.rate;
        if self.random() % 1_000 < link.loss {
            return;
        }
        let marked = backlog >= link.mark;
        let at = self.free_at + link.base / 2;
        self.schedule(
            at,
            i,
            Event::Arrive {
                number,
                bytes,
                ask,
                marked,
            },
        );
    }

    fn arrive(&mut self, i: usize, number: u64, bytes: u32, ask: bool, marked: bool) {
        let now = self.now;
        let flow = &mut self.flows[i];
        flow.arrived += u64::from(bytes);
        let gap = flow.expected < number;
        for missing in flow.expected..number {
            flow.lost += 1;
            flow.heard.push(Heard {
                number: missing,
                arrived: false,
                marked: false,
            });
        }
        flow.expected = number + 1;
        flow.heard.push(Heard {
            number,
            arrived: true,
            marked,
        });
        flow.heard_at = now;
        if !ask && !gap {
            return;
        }
        if self.random() % 1_000 < self.link.loss {
            // Acknowledgements are absolute: the next one reports it all.
            return;
        }
        let late = match self.link.noise {
            Noise::None => 0,
            Noise::Spikes(most) => {
                let phase = now % (7 * MS);
                let pause = MS.saturating_sub(phase);
                pause.max(self.random() % most)
            }
            Noise::Slices(runs, of) => {
                let phase = now % of;
                if phase < runs { 0 } else { of - phase }
            }
        };
        let flow = &mut self.flows[i];
        let heard = std::mem::take(&mut flow.heard);
        let at = (now + self.link.base / 2 + late).max(flow.last_ack_at);
        flow.last_ack_at = at;
        self.schedule(at, i, Event::Ack(heard));
    }

    fn acked(&mut self, i: usize, heard: &[Heard]) {
        let now = self.now;
        let flow = &mut self.flows[i];
        let mut sample = AckSample::default();
        let mut largest = 0;
        for one in heard {
            let Some(at) = flow.sent.iter().position(|sent| sent.number == one.number) else {
                continue;
            };
            let sent = flow.sent.remove(at).unwrap();
            if !one.arrived {
                sample.lost_packets += 1;
                continue;
            }
            largest = one.number;
            sample.acked_packets += 1;
            sample.ce_packets += u32::from(one.marked);
            sample.rtt_ns = Some(now - sent.at);
        }
        flow.backoff = 0;
        if let Some(rtt) = sample.rtt_ns {
            flow.rtt.sample(rtt);
        }
        sample.in_flight_packets = flow.sent.len() as u32;
        sample.app_limited = now >= flow.stop;
        match &mut flow.control {
            Control::Ours(congestion, pacer) => {
                congestion.on_ack(now, &sample);
                pacer.set_rate(congestion.rate());
            }
            Control::Twin(twin) => {
                let lost = sample.lost_packets;
                twin.on_ack(now, sample.acked_packets, lost, largest, flow.next);
            }
            Control::Fixed(_) => {}
        }
        self.send(i);
    }

    fn set_probe(&mut self, i: usize) {
        let flow = &mut self.flows[i];
        if flow.sent.is_empty() {
            return;
        }
        let at = self.now + flow.rtt.probe_after(30_000, flow.backoff.saturating_sub(2));
        flow.probe_at = at;
        self.schedule(at, i, Event::Probe);
    }

    fn probe(&mut self, i: usize) {
        let flow = &mut self.flows[i];
        if flow.probe_at != self.now || flow.sent.is_empty() {
            return;
        }
        flow.backoff = flow.backoff.saturating_add(1);
        if let Control::Ours(congestion, _) = &mut flow.control {
            congestion.on_timeout(self.now);
        }
        self.transmit(i, 100, true);
        self.set_probe(i);
    }
}
