//! The quick ways beside the usual ones, over copied tables: both must do the same.

use portolan_proto::{Endpoint, Message, PeerId, Sources};
use portolan_seal::Null;
use portolan_wire::ARGS_MAX;

use super::Want;
use crate::memory::EndpointMemory;

/// Sends a message that an application wants to send by both ways, each over a copy of `memory`.
/// Returns whether the quick way was free.
///
/// # Panics
/// If packet or state differ.
pub fn send_both_ways(
    memory: &EndpointMemory,
    now: u64,
    peer: PeerId,
    want: &Want,
    sources: &impl Sources,
) -> bool {
    let args = [7; ARGS_MAX];
    let payload = vec![5; want.total as usize];
    let message = Message {
        priority: want.priority,
        flow: want.flow,
        port: 3,
        args: &args[..want.args],
        payload: &payload,
    };
    // Keys change neither lengths nor state, and a nonce must not be used twice.
    let seal = &mut Null;
    let mut quick = memory.clone();
    let mut e = Endpoint::new(quick.tables(), seal);
    let Some((number, t)) = e.send_one(now, peer, &message) else {
        assert!(quick == *memory, "the quick way has done something in vain");
        return false;
    };
    let packet = e.frame(&t).to_vec();
    let mut usual = memory.clone();
    let mut e = Endpoint::new(usual.tables(), seal);
    assert_eq!(e.send(now, peer, &message), Ok(number));
    assert_eq!(e.poll_transmit(now, false, sources), Some(t));
    assert_eq!(e.frame(&t), packet);
    assert!(quick == usual, "the quick way ends in another state");
    true
}
