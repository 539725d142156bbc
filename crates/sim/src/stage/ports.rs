//! What the stage's programs bind to their ports.

use portolan_engine::{Binding, Context, Message, PortId, SendError, SpaceId};

use super::book::{LifeId, Reaction, SharedBook, port};

/// Room in a buffer of a port, bytes: short ones are too short for some messages.
const ROOM: [usize; 2] = [1_500, 400_000];

/// Calls of a handler.
fn handle(book: &SharedBook, me: LifeId, space: SpaceId, ctx: &mut Context<'_>, m: &Message<'_>) {
    if book.lock().placings.resumes(me, space) {
        ctx.resume_port(port::PLACING);
    }
    let reaction = book.lock().deliver(me, space, m);
    let to = match &reaction {
        Reaction::Forward(rank, _) | Reaction::Give(rank, _) => *rank,
        Reaction::Nothing | Reaction::Reply(_) => m.from,
    };
    let sent = match &reaction {
        Reaction::Nothing => return,
        Reaction::Reply(draft) => ctx.reply_to(draft.port, &draft.args, &draft.payload()),
        Reaction::Forward(rank, draft) => {
            let sent = ctx.send_with(*rank, draft.port, &draft.options(), &draft.payload());
            sent.map(drop)
        }
        Reaction::Give(rank, draft) => {
            let sent = ctx.post_message(*rank, draft.port, &draft.options(), draft.payload());
            sent.map(|op| book.lock().given(me, draft.clone(), op))
                .map_err(|(e, _)| e)
        }
    };
    let (Reaction::Reply(draft) | Reaction::Forward(_, draft) | Reaction::Give(_, draft)) =
        reaction
    else {
        return;
    };
    match sent {
        Ok(()) => {}
        Err(SendError::NoCredit | SendError::PeerDead { .. } | SendError::Misuse(_)) => {
            book.lock().unsend(draft.id);
        }
        // No port of its own could ever take it.
        Err(SendError::TooLong) if to == ctx.rank() => book.lock().unsend(draft.id),
        Err(e) => panic!("message {}: {e:?}", draft.id),
    }
}

/// What is bound to a port.
pub fn binding(book: &SharedBook, me: LifeId, at: PortId) -> Binding {
    let shared = book.clone();
    let to_handler = Binding::to(move |ctx, m| handle(&shared, me, at.space, ctx, m));
    match at.number {
        port::SHORT => to_handler.with_buffer(vec![0; ROOM[0]]),
        port::LONG => to_handler.with_buffer(vec![0; ROOM[1]]),
        port::ANY_THREAD => to_handler.any_thread(),
        port::PLACING => {
            let shared = book.clone();
            let placing = to_handler.placing(move |m| shared.lock().place(me, at.space, m));
            if me.is_multiple_of(2) {
                placing.any_thread()
            } else {
                placing
            }
        }
        _ => to_handler,
    }
}
