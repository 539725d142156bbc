//! Waiting for the other rank, awake, but not for ever.

use portolan_hosts::failure::{Result, fail};
use portolan_sys::clock::now_ns;

/// Nothing has come for so long: the other rank is in trouble.
const TIMEOUT_NS: u64 = 20_000_000_000;

/// For polls that find nothing.
#[derive(Default)]
pub struct Backoff {
    empty: u32,
    since_ns: Option<u64>,
}

impl Backoff {
    /// Another one; the clock is looked at rarely.
    pub fn empty_poll(&mut self) -> Result<()> {
        self.empty = self.empty.wrapping_add(1);
        if self.empty.is_multiple_of(4096) {
            let now = now_ns();
            let since = *self.since_ns.get_or_insert(now);
            if now - since > TIMEOUT_NS {
                return fail(format!(
                    "nothing came of the other rank within {} s",
                    TIMEOUT_NS / 1_000_000_000
                ));
            }
        }
        Ok(())
    }
}
