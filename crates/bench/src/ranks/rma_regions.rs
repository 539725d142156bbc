//! Puts and gets between the two ranks, as slices of `bench rma` do them.

use std::rc::Rc;

use portolan::{
    Buffer, Endpoint, Memory, Notify, OpId, Place, PutEnd, PutOptions, RegionId, RemoteKey, Rights,
    Selector,
};
use portolan_hosts::failure::{Result, fail};

use crate::ranks::backoff::Backoff;
use crate::ranks::portolan::ours;

/// Tag of the messages that carry keys.
const KEYS: u64 = 2;
/// The last bytes of a put say which it is.
pub const MARK_BYTES: usize = 8;

/// A region of this rank's, and the other's.
pub struct RmaRegions {
    endpoint: Rc<Endpoint>,
    peer: u32,
    leads: bool,
    mine: RegionId,
    theirs: Place,
    /// What is put or got, while it is not under way.
    bytes: Vec<u8>,
    under_way: Option<OpId>,
    /// Puts so far, of either rank.
    puts: u64,
    /// Where in a put its mark is.
    mark: usize,
}

impl RmaRegions {
    /// Registers memory for puts and gets of `size` bytes, and tells the other
    /// rank, which does the same.
    pub fn open(endpoint: &Rc<Endpoint>, peer: u32, size: usize) -> Result<Self> {
        if size < MARK_BYTES {
            return fail(format!("a put of {size} bytes does not say which it is"));
        }
        let registered = endpoint.register(vec![0; size], None, Rights::Both);
        let mine = registered.map_err(|(e, _)| ours(e))?;
        let Some(key) = endpoint.remote_key(mine).map_err(ours)? else {
            return fail("a region was closed");
        };
        endpoint
            .send_tagged(peer, KEYS, &key.to_bytes())
            .map_err(ours)?;
        let mut key = [0; 16];
        endpoint
            .receive_tagged(&Selector::from(peer, KEYS), &mut key)
            .map_err(ours)?;
        Ok(Self {
            leads: endpoint.rank() == 0,
            endpoint: Rc::clone(endpoint),
            peer,
            mine,
            theirs: Place {
                key: RemoteKey::from_bytes(key),
                offset: 0,
            },
            bytes: vec![0x5a; size],
            under_way: None,
            puts: 0,
            mark: size - MARK_BYTES,
        })
    }

    /// A put there and one back; each rank waits until the other's shows in its
    /// memory.
    pub fn there_and_back(&mut self) -> Result<()> {
        self.puts += 1;
        if self.leads {
            self.put()?;
            return self.see();
        }
        self.see()?;
        self.put()
    }

    fn put(&mut self) -> Result<()> {
        self.settle()?;
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes[self.mark..].copy_from_slice(&self.puts.to_ne_bytes());
        let options = PutOptions {
            end: PutEnd::Local,
            ..PutOptions::default()
        };
        let posted = (self.endpoint).post_put(self.peer, self.theirs, bytes, &options);
        self.under_way = Some(posted.map_err(|(error, _)| ours(error))?);
        Ok(())
    }

    /// The last put's memory is ours again.
    fn settle(&mut self) -> Result<()> {
        let Some(op) = self.under_way.take() else {
            return Ok(());
        };
        let ended = self.endpoint.wait_end(op, None).map_err(ours)?;
        ended.completion.result.map_err(ours)?;
        if let Some(Memory::Source(bytes)) = ended.memory {
            self.bytes = bytes.into_vec();
        }
        Ok(())
    }

    /// Looks at the memory until the other's put is there.
    fn see(&self) -> Result<()> {
        let mut mark = [0; MARK_BYTES];
        let mut backoff = Backoff::default();
        loop {
            let read = self
                .endpoint
                .read_region(self.mine, self.mark as u64, &mut mark);
            if read.map_err(ours)?.is_none() {
                return fail("a region was closed");
            }
            if u64::from_ne_bytes(mark) == self.puts {
                return Ok(());
            }
            self.endpoint.progress().map_err(ours)?;
            backoff.empty_poll()?;
        }
    }

    /// Gets what lies at the other rank.
    pub fn get(&mut self) -> Result<()> {
        let into = std::mem::take(&mut self.bytes);
        let posted = (self.endpoint).post_get(self.peer, self.theirs, into, Notify::default());
        let op = posted.map_err(|(error, _)| ours(error))?;
        let ended = self.endpoint.wait_end(op, None).map_err(ours)?;
        ended.completion.result.map_err(ours)?;
        if let Some(Memory::Sink(into)) = ended.memory {
            let only = into.into_buffers().pop();
            self.bytes = only.and_then(Buffer::into_vec).unwrap_or_default();
        }
        Ok(())
    }

    /// Registers other memory, and ends that.
    pub fn register(&mut self) -> Result<()> {
        let bytes = std::mem::take(&mut self.bytes);
        let registered = self.endpoint.register(bytes, None, Rights::Both);
        let region = registered.map_err(|(e, _)| ours(e))?;
        let memory = self.endpoint.deregister(region).map_err(ours)?;
        let only = memory.and_then(|it| it.into_buffers().pop());
        let Some(bytes) = only.and_then(Buffer::into_vec) else {
            return fail("registered memory came back as something else");
        };
        self.bytes = bytes;
        Ok(())
    }

    /// Ends it, once the other rank is done too.
    pub fn close(mut self) -> Result<()> {
        self.settle()?;
        (self.endpoint.deregister(self.mine).map(drop)).map_err(ours)
    }
}
