//! Futures: waiting without a blocked thread.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};

use portolan_engine::{Misuse, WaitError};
use portolan_exchange::OpId;

use super::matched::Ended;
use crate::space::Space;

/// Ready when handlers have run; see [`Space::arrival`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Arrival<'a> {
    endpoint: &'a Space,
    seen: u64,
}

impl Space {
    /// Returns a future that is ready when a message has been delivered after this call; polling it
    /// makes progress. Between polls the helper thread wakes it, or any other thread that makes
    /// progress.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn arrival(&self) -> Result<Arrival<'_>, Misuse> {
        let seen = self.enter()?.core.received(self.id);
        Ok(Arrival {
            endpoint: self,
            seen,
        })
    }
}

impl Future for Arrival<'_> {
    type Output = Result<(), Misuse>;

    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let mut s = match self.endpoint.enter() {
            Ok(s) => s,
            Err(m) => return Poll::Ready(Err(m)),
        };
        s.begin();
        loop {
            let moved = s.pass();
            s.rethrow();
            if s.core.received(self.endpoint.id) != self.seen {
                return Poll::Ready(Ok(()));
            }
            if moved == 0 {
                s.sleep.register(cx.waker());
                s.end();
                return Poll::Pending;
            }
        }
    }
}

/// Ready when an operation has ended; see [`Space::ended`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Operation<'a> {
    endpoint: &'a Space,
    op: OpId,
}

impl Space {
    /// Returns a future of an operation's end, woken and polled as that of [`Space::arrival`].
    pub const fn ended(&self, op: OpId) -> Operation<'_> {
        Operation { endpoint: self, op }
    }
}

impl Future for Operation<'_> {
    type Output = Result<Ended, WaitError>;

    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let Self { endpoint, op } = *self;
        let mut s = match endpoint.enter() {
            Ok(s) => s,
            Err(m) => return Poll::Ready(Err(m.into())),
        };
        s.begin();
        loop {
            match s.exchange(endpoint.id).is_done(op) {
                None => return Poll::Ready(Err(WaitError::NoSuchOperation)),
                Some(true) => {
                    if let Some(ended) = s.take_end(endpoint.id, op) {
                        return Poll::Ready(Ok(ended));
                    }
                }
                Some(false) => {}
            }
            let moved = s.pass();
            s.rethrow();
            if moved == 0 {
                s.sleep.register(cx.waker());
                s.end();
                return Poll::Pending;
            }
        }
    }
}
