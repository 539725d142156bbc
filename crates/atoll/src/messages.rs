//! Messages: the send space, and the descriptors of what has arrived.
//!
//! A message is a matched one. What a program looks at before it receives it
//! is claimed, with all that came before it, so that the descriptors here stand
//! in the order of arrival and are all older than what is still unclaimed.

use std::collections::VecDeque;
use std::sync::Mutex;

use portolan::c_edge::{EAGAIN, EINVAL, EMSGSIZE, ENOENT, Errno, failure};
use portolan::{
    Buffer, Ended, Endpoint, MessageId, Notify, OpId, QueueId, Scatter, Selector, TaggedOptions,
    WaitError,
};

use crate::lock;
use crate::port::Port;

/// As the header says.
const SEND_MAX: usize = 1 << 20;
const ANY: i32 = -1;
const ANY_TAG: u32 = u32::MAX;

/// Bytes of messages that were sent and not consumed, with a descriptor each:
/// four of the longest.
const SEND_SPACE: u64 = 4 * (SEND_MAX as u64 + DESCRIPTOR);
const DESCRIPTOR: u64 = 64;

/// A message's header as C has it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    pub from: i32,
    pub tag: u32,
    pub length: u64,
    pub descriptor: u64,
    reserved: [u64; 5],
}

const _: () = assert!(size_of::<Header>() == 64);

impl Header {
    fn new(from: u32, tag: u64, length: u64, descriptor: u64) -> Self {
        Self {
            from: i32::try_from(from).unwrap_or(ANY),
            // Only we send, and our tags are no longer.
            tag: u32::try_from(tag).unwrap_or(ANY_TAG),
            length,
            descriptor,
            reserved: [0; 5],
        }
    }
}

/// Which messages a call asks for; `None` is any.
#[derive(Clone, Copy)]
pub struct Wanted {
    from: Option<u32>,
    tag: Option<u32>,
}

impl Wanted {
    pub const ALL: Self = Self {
        from: None,
        tag: None,
    };

    pub fn new(port: &Port, from: i32, tag: u32) -> Result<Self, Errno> {
        Ok(Self {
            from: match from {
                ANY => None,
                id => Some(port.rank(id)?),
            },
            tag: (tag != ANY_TAG).then_some(tag),
        })
    }

    fn fits(&self, header: &Header) -> bool {
        self.from
            .is_none_or(|from| i64::from(from) == i64::from(header.from))
            && self.tag.is_none_or(|tag| tag == header.tag)
    }

    const fn selector(&self) -> Selector {
        Selector {
            source: self.from,
            tag: match self.tag {
                Some(tag) => tag as u64,
                None => 0,
            },
            ignore: if self.tag.is_none() { u64::MAX } else { 0 },
        }
    }
}

/// Messages that were sent and not consumed.
pub struct Sends {
    queue: QueueId,
    held: Mutex<Unclaimed>,
}

#[derive(Default)]
struct Unclaimed {
    bytes: u64,
    /// How the first message was lost whose loss was not told.
    lost: Option<Errno>,
}

impl Sends {
    pub fn start(endpoint: &Endpoint) -> Result<Self, Errno> {
        Ok(Self {
            queue: endpoint.open_queue()?,
            held: Mutex::default(),
        })
    }
}

/// What has arrived and was looked at.
#[derive(Default)]
pub struct Inbox {
    made: u64,
    waiting: VecDeque<(MessageId, Header)>,
}

impl Inbox {
    fn find(&self, wanted: Wanted) -> Option<usize> {
        (self.waiting.iter()).position(|(_, header)| wanted.fits(header))
    }
}

impl Port {
    pub fn send(&self, dest: i32, tag: u32, data: &[u8]) -> Result<(), Errno> {
        let rank = self.peer(dest)?;
        if tag == ANY_TAG {
            return Err(EINVAL);
        }
        if data.len() > SEND_MAX {
            return Err(EMSGSIZE);
        }
        let bytes = data.len() as u64 + DESCRIPTOR;
        let mut held = lock(&self.sends.held);
        while let Some(ended) = self.endpoint.next_completion(self.sends.queue)? {
            self.consumed(&mut held, &ended)?;
        }
        if held.bytes + bytes > SEND_SPACE {
            return Err(EAGAIN);
        }
        let options = TaggedOptions {
            notify: Notify {
                context: bytes,
                queue: Some(self.sends.queue),
                ..Notify::NONE
            },
            ..TaggedOptions::default()
        };
        let posted = self
            .endpoint
            .post_send(rank, tag.into(), &options, data.to_vec());
        posted.map_err(|(e, _)| e)?;
        held.bytes += bytes;
        Ok(())
    }

    fn consumed(&self, held: &mut Unclaimed, ended: &Ended) -> Result<(), Errno> {
        held.bytes -= ended.completion.context;
        let lost = failure(&self.endpoint, &ended.completion)?;
        held.lost = held.lost.or(lost);
        Ok(())
    }

    /// Waits until all descriptors of messages that were sent are consumed; tells
    /// if a message was lost with its receiver.
    pub fn all_consumed(&self) -> Result<(), Errno> {
        let mut held = lock(&self.sends.held);
        while held.bytes > 0 {
            match self.endpoint.wait_completion(self.sends.queue, None) {
                Ok(ended) => self.consumed(&mut held, &ended)?,
                // Those that were sent to it end as well.
                Err(WaitError::PeerDead { why, .. }) => {
                    lock(&self.missed).push_back(why.into());
                }
                Err(e) => return Err(e.into()),
            }
        }
        held.lost.take().map_or(Ok(()), Err)
    }

    pub fn probe(&self, wanted: Wanted) -> Result<bool, Errno> {
        let inbox = lock(&self.inbox);
        let found = inbox.find(wanted).is_some();
        Ok(found || self.endpoint.probe(&wanted.selector())?.is_some())
    }

    /// The header of the oldest message that fits; it and those before it have
    /// descriptors then.
    pub fn find(&self, wanted: Wanted) -> Result<Option<Header>, Errno> {
        let mut inbox = lock(&self.inbox);
        if let Some(at) = inbox.find(wanted) {
            return Ok(Some(inbox.waiting[at].1));
        }
        while let Some((message, p)) = self.endpoint.claim(&Wanted::ALL.selector())? {
            inbox.made += 1;
            let header = Header::new(p.from, p.tag, p.total, inbox.made);
            inbox.waiting.push_back((message, header));
            if wanted.fits(&header) {
                return Ok(Some(header));
            }
        }
        Ok(None)
    }

    /// # Safety
    /// `into` is memory of the caller's for the time of this call.
    pub unsafe fn receive(
        &self,
        wanted: Wanted,
        into: *mut u8,
        room: usize,
    ) -> Result<(Header, bool), Errno> {
        // SAFETY: the operation has ended when this returns: `ended` sees to it.
        let into = unsafe { scatter(into, room) };
        // Posted while nobody claims: else one could come between the look and
        // the post, and wait here for ever.
        let mut inbox = lock(&self.inbox);
        let op = match inbox.find(wanted) {
            Some(at) => self.take(&mut inbox, at, into)?,
            None => {
                if wanted.from.is_none()
                    && let Some(why) = lock(&self.missed).pop_front()
                {
                    return Err(why);
                }
                (self.endpoint).post_receive(&wanted.selector(), into, Notify::default())?
            }
        };
        drop(inbox);
        self.received(op)
    }

    /// # Safety
    /// As [`Port::receive`].
    pub unsafe fn receive_descriptor(
        &self,
        descriptor: u64,
        into: *mut u8,
        room: usize,
    ) -> Result<(Header, bool), Errno> {
        let mut inbox = lock(&self.inbox);
        let at = (inbox.waiting).binary_search_by_key(&descriptor, |(_, h)| h.descriptor);
        let at = at.map_err(|_| ENOENT)?;
        // SAFETY: as there.
        let op = self.take(&mut inbox, at, unsafe { scatter(into, room) })?;
        drop(inbox);
        self.received(op)
    }

    fn take(&self, inbox: &mut Inbox, at: usize, into: Scatter) -> Result<OpId, Errno> {
        let (message, _) = inbox.waiting.remove(at).ok_or(ENOENT)?;
        Ok((self.endpoint).receive_claimed(message, into, Notify::default())?)
    }

    /// Waits for a receive; tells what it has got, and whether all of it.
    fn received(&self, op: OpId) -> Result<(Header, bool), Errno> {
        let c = loop {
            match self.endpoint.wait_end(op, None) {
                Ok(ended) => break ended.completion,
                Err(WaitError::PeerDead { why, .. }) => {
                    // What has met a message goes on.
                    if self.endpoint.cancel(op)? {
                        self.endpoint.wait_end(op, None)?;
                        return Err(why.into());
                    }
                }
                Err(e) => return Err(e.into()),
            }
        };
        let whole = match failure(&self.endpoint, &c)? {
            None => true,
            Some(EMSGSIZE) => false,
            Some(why) => return Err(why),
        };
        Ok((Header::new(c.peer, c.tag, c.total, 0), whole))
    }
}

/// # Safety
/// As [`Buffer::lent`], until the operation has ended.
unsafe fn scatter(start: *mut u8, bytes: usize) -> Scatter {
    if bytes == 0 {
        return Scatter::from(Vec::new());
    }
    // SAFETY: see above.
    Scatter::from(unsafe { Buffer::lent(start, bytes) })
}
