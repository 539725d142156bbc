//! What carries the exchange's messages, and lets it reach other memory.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use portolan_exchange::{
    DirectError, FetchError, Host, Located, OpId, Outgoing, Push, Refusal, Sent, Signal,
    SignalRefusal, Sink, Source,
};
use portolan_proto::{Endpoint, Message, PeerId, Release, SendError, SourceId};
use portolan_seal::AesGcm;
use portolan_wire::Priority;

use super::memory;
use super::reach::{Bytes, Published, Reach};

/// A message whose payload the protocol reads as it goes.
pub struct Lent {
    pub op: OpId,
    pub bytes: Vec<u8>,
}

/// What is carried for the exchange.
#[derive(Default)]
pub struct Load {
    pub who: usize,
    pub lent: BTreeMap<u64, Lent>,
    pub sources: u64,
    pub push: Push,
    /// Words of signals that have come; room is kept for another.
    pub signals: Vec<u64>,
    pub reserved: bool,
    /// `None`: they are on different hosts.
    pub reach: Option<Rc<RefCell<Reach>>>,
}

/// The exchange's host, for one call.
pub struct At<'a, 'm> {
    pub load: &'a mut Load,
    pub view: &'a mut Endpoint<'m, AesGcm>,
    pub now: u64,
}

/// The other rank: there is but one.
pub const OTHER: PeerId = PeerId(0);
/// Port of the first kind of message.
pub const PORT: u16 = 100;
const REQUESTS: u16 = 6;

fn message<'a>(m: &'a Outgoing<'a>, payload: &'a [u8]) -> Message<'a> {
    Message {
        priority: if m.kind.is_reply() {
            Priority::Reply
        } else {
            Priority::Request
        },
        flow: REQUESTS + u16::from(m.kind.is_reply()),
        port: PORT + m.kind as u16,
        args: m.args,
        payload,
    }
}

fn refusal(e: SendError) -> Refusal {
    match e {
        SendError::NoCredit => Refusal::NoRoom,
        SendError::PeerDead => Refusal::Dead,
        e => panic!("{e:?}"),
    }
}

impl At<'_, '_> {
    fn carry(&mut self, m: &Outgoing<'_>, payload: &[u8], op: OpId) -> Result<Sent, Refusal> {
        if payload.len() <= self.view.inline_max(OTHER, m.args.len()) {
            let sent = self.view.send(self.now, OTHER, &message(m, payload));
            return sent.map(|_| Sent::Copied).map_err(refusal);
        }
        let number = self.load.sources;
        let sent = self.view.send_long(
            self.now,
            OTHER,
            &message(m, &[]),
            payload.len() as u64,
            SourceId(number),
            Release::Copied,
        );
        sent.map_err(refusal)?;
        self.load.sources += 1;
        let bytes = payload.to_vec();
        self.load.lent.insert(number, Lent { op, bytes });
        Ok(Sent::Lent)
    }
}

impl Host for At<'_, '_> {
    type Source = Bytes;
    type Sink = Bytes;

    fn send(&mut self, _to: u32, m: &Outgoing<'_>) -> Result<(), Refusal> {
        let sent = self.view.send(self.now, OTHER, &message(m, &[]));
        sent.map(drop).map_err(refusal)
    }

    fn send_from(
        &mut self,
        _to: u32,
        m: &Outgoing<'_>,
        source: &Bytes,
        at: u64,
        bytes: u64,
        op: OpId,
    ) -> Result<Sent, Refusal> {
        self.carry(m, &source.0[at as usize..][..bytes as usize], op)
    }

    fn send_region(
        &mut self,
        _to: u32,
        m: &Outgoing<'_>,
        memory: &Bytes,
        at: u64,
        bytes: u64,
        op: OpId,
    ) -> Result<Sent, Refusal> {
        self.carry(m, &memory.0[at as usize..][..bytes as usize], op)
    }

    fn reserve_signal(&mut self, _from: u32, port: u32) -> Result<(), SignalRefusal> {
        if port != memory::PORT {
            return Err(SignalRefusal::NoPort);
        }
        if std::mem::replace(&mut self.load.reserved, true) {
            return Err(SignalRefusal::NoRoom);
        }
        Ok(())
    }

    fn signal(&mut self, from: u32, signal: &Signal, _bytes: u64) {
        self.unreserve_signal(from, signal.port);
        self.load.signals.push(signal.word);
    }

    fn unreserve_signal(&mut self, _from: u32, _port: u32) {
        assert!(std::mem::take(&mut self.load.reserved), "no room was kept");
    }

    fn has_queues(&self, _from: u32) -> bool {
        true
    }

    fn push(&self, _to: u32) -> Push {
        self.load.push
    }

    fn locate(&mut self, _to: u32, source: &Bytes) -> Option<Located> {
        let mut reach = self.load.reach.as_ref()?.borrow_mut();
        let address = reach.locate(self.load.who, source.0.clone());
        Some(Located {
            address,
            shares: true,
        })
    }

    fn publish(&mut self, _to: u32, key: u64, _: &mut Bytes, at: u64, bytes: u64) -> bool {
        let Some(reach) = &self.load.reach else {
            return false;
        };
        let published = Published {
            at,
            bytes: bytes as usize,
            written: None,
            busy: key as u32 % 4,
            hidden: false,
        };
        let before = (reach.borrow_mut().published).insert((self.load.who, key), published);
        assert!(before.is_none());
        true
    }

    fn withdraw(&mut self, key: u64, sink: &mut Bytes) -> bool {
        let reach = self.load.reach.as_ref().expect("it was published");
        let (mut reach, at) = (reach.borrow_mut(), (self.load.who, key));
        let published = reach.published.get_mut(&at).expect("it was published");
        published.hidden = true;
        if published.busy > 0 {
            published.busy -= 1;
            return false;
        }
        let published = reach.published.remove(&at).expect("it was published");
        if let Some(written) = published.written {
            sink.write(published.at, &written);
        }
        true
    }

    fn write_shown(
        &mut self,
        to: u32,
        key: u64,
        source: &Bytes,
        at: u64,
        bytes: u64,
    ) -> Result<(), DirectError> {
        let reach = self.load.reach.as_ref().ok_or(DirectError::NotPossible)?;
        let mut reach = reach.borrow_mut();
        let published = reach.published.get_mut(&(to as usize, key));
        let published = (published.filter(|it| !it.hidden)).ok_or(DirectError::NotPossible)?;
        assert_eq!(published.bytes as u64, bytes);
        if key.is_multiple_of(3) {
            // As if the kernel did not permit it: the bytes go by the network.
            reach.unwritten += 1;
            return Err(DirectError::NotPossible);
        }
        let mut written = vec![0; published.bytes];
        Source::read(source, at, &mut written);
        published.written = Some(written);
        reach.written += 1;
        Ok(())
    }

    fn await_peer(&mut self, _rank: u32) {
        self.view.await_peer(self.now, OTHER);
    }

    fn fetch(
        &mut self,
        from: u32,
        address: u64,
        into: &mut Bytes,
        at: u64,
        bytes: u64,
    ) -> Result<(), FetchError> {
        let reach = self.load.reach.as_ref().expect("it was located");
        let reach = reach.borrow();
        let found = reach.bytes(from as usize, address, bytes);
        into.write(at, found.ok_or(FetchError::Gone)?);
        Ok(())
    }
}
