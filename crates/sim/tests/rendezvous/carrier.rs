//! What carries the exchange's messages, and lets it reach other memory.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use portolan_exchange::{Did, Located, OpId, Outgoing, Payload, Range, Sink, Task, Where};
use portolan_proto::{Endpoint, Message, PeerId, Release, SendError, SourceId};
use portolan_seal::AesGcm;
use portolan_wire::Priority;

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
    /// Words of signals that have come, and whether one more has room.
    pub signals: Vec<u64>,
    pub hears: bool,
    /// `None`: they are on different hosts.
    pub reach: Option<Rc<RefCell<Reach>>>,
}

/// What does the exchange's tasks, for one call.
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

impl At<'_, '_> {
    pub fn act(&mut self, task: Task<'_, Bytes, Bytes>) -> Did {
        match task {
            Task::Locate(_, source) => {
                let Some(reach) = &self.load.reach else {
                    return Did::NotPossible;
                };
                let address = (reach.borrow_mut()).locate(self.load.who, source.0.clone());
                let shares = true;
                Did::Located(Located { address, shares })
            }
            Task::Send(_, m) => self.send(&m),
            Task::Signal(_, signal, _) => {
                if !std::mem::take(&mut self.load.hears) {
                    return Did::NoRoom;
                }
                self.load.signals.push(signal.word);
                Did::Done
            }
            Task::Publish(_, key, Range { at, bytes, .. }) => self.publish(key, at, bytes),
            Task::Withdraw(key, memory) => self.withdraw(key, memory),
            Task::CopyFrom(from, Where::Address(address), Range { of, at, bytes }) => {
                let reach = self.load.reach.as_ref().expect("it was located");
                let reach = reach.borrow();
                let Some(found) = reach.bytes(from as usize, address, bytes) else {
                    return Did::Dead;
                };
                of.write(at, found);
                Did::Done
            }
            Task::CopyTo(to, Where::Published(key), Range { of, at, bytes }) => {
                self.write(to, key, &of.0[at as usize..][..bytes as usize])
            }
            Task::Prepare(_) => Did::Done,
            Task::CopyFrom(..) | Task::CopyTo(..) => Did::NotPossible,
        }
    }

    fn send(&mut self, m: &Outgoing<'_, Bytes, Bytes>) -> Did {
        let payload = match &m.payload {
            Payload::Nothing => &[],
            Payload::Source(Range { of, at, bytes }) => &of.0[*at as usize..][..*bytes as usize],
            Payload::Region(Range { of, at, bytes }) => &of.0[*at as usize..][..*bytes as usize],
        };
        let mut message = Message {
            priority: if m.kind.is_reply() {
                Priority::Reply
            } else {
                Priority::Request
            },
            flow: REQUESTS + u16::from(m.kind.is_reply()),
            port: PORT + m.kind as u16,
            args: m.args(),
            payload,
        };
        let (number, total) = (self.load.sources, payload.len());
        let lent = total > self.view.inline_max(OTHER, message.args.len());
        let sent = if lent {
            message.payload = &[];
            let source = SourceId(number);
            let release = Release::Copied;
            (self.view).send_long(self.now, OTHER, &message, total as u64, source, release)
        } else {
            self.view.send(self.now, OTHER, &message)
        };
        match sent {
            Ok(_) if lent => {
                self.load.sources += 1;
                let (op, bytes) = (m.op, payload.to_vec());
                self.load.lent.insert(number, Lent { op, bytes });
                Did::Lent
            }
            Ok(_) => Did::Done,
            Err(SendError::NoCredit) => Did::NoRoom,
            Err(SendError::PeerDead) => Did::Dead,
            Err(e) => panic!("{e:?}"),
        }
    }

    fn publish(&self, key: u64, at: u64, bytes: u64) -> Did {
        let Some(reach) = &self.load.reach else {
            return Did::NotPossible;
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
        Did::Done
    }

    fn withdraw(&self, key: u64, sink: &mut Bytes) -> Did {
        let reach = self.load.reach.as_ref().expect("it was published");
        let (mut reach, at) = (reach.borrow_mut(), (self.load.who, key));
        let published = reach.published.get_mut(&at).expect("it was published");
        published.hidden = true;
        if published.busy > 0 {
            published.busy -= 1;
            return Did::NoRoom;
        }
        let published = reach.published.remove(&at).expect("it was published");
        if let Some(written) = published.written {
            sink.write(published.at, &written);
        }
        Did::Done
    }

    fn write(&self, to: u32, key: u64, part: &[u8]) -> Did {
        let Some(reach) = &self.load.reach else {
            return Did::NotPossible;
        };
        let mut reach = reach.borrow_mut();
        let published = reach.published.get_mut(&(to as usize, key));
        let Some(published) = published.filter(|it| !it.hidden) else {
            return Did::NotPossible;
        };
        assert_eq!(published.bytes, part.len());
        if key.is_multiple_of(3) {
            // As if the kernel did not permit it: the bytes go by the network.
            reach.unwritten += 1;
            return Did::NotPossible;
        }
        published.written = Some(part.to_vec());
        reach.written += 1;
        Did::Done
    }
}
