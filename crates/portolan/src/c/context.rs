//! Arguments of C handlers, and the calls that they may make.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use super::error::{EFAULT, EINVAL, Errno};
use super::ports::{binding, buffer, old_buffer};
use super::send::{Sending, bytes};
use super::types::{
    CBinding, CErrorHandler, CEvent, CHandler, CMessage, CPlacing, CSendOptions, INTO, LATER,
    PEER_BACK, PEER_COME, PEER_DEAD, PEER_SILENT, REFUSED, TOO_LONG,
};
use super::{Slot, User};
use crate::{ARGS_MAX, Context, Death, Event, Failure, Gather, Message, Placement};

/// Lives on the stack of a handler's caller.
pub(super) struct CContext<'c, 'e> {
    context: &'c mut Context<'e>,
    /// Whether there is a message to reply to.
    answerable: bool,
}

/// # Safety
/// `context` is null or that of the running handler.
unsafe fn context<'a, 'c, 'e>(
    context: *const CContext<'c, 'e>,
) -> Result<&'a mut CContext<'c, 'e>, Errno> {
    // SAFETY: see above; one call at a time, for a handler runs in one thread.
    unsafe { context.cast_mut().as_mut() }.ok_or(EFAULT)
}

/// Calls `act` with a message as C programs see it.
#[inline]
fn with_message<R>(m: &Message<'_>, act: impl FnOnce(*const CMessage) -> R) -> R {
    let mut args = [0; ARGS_MAX];
    let mut count = 0;
    for (to, word) in args.iter_mut().zip(m.args()) {
        *to = word;
        count += 1;
    }
    let message = CMessage {
        size: size_of::<CMessage>() as u32,
        from: m.from,
        port: m.port,
        flow: m.flow,
        priority: m.priority as u8,
        reserved: [0; 3],
        number: m.number.0,
        arg_count: count,
        args: args.as_ptr(),
        payload: m.payload.as_ptr().cast(),
        bytes: m.payload.len(),
        total: m.total,
    };
    act(&raw const message)
}

/// Runs a C handler.
#[inline]
pub(super) fn handle(c: &mut Context<'_>, m: &Message<'_>, handler: CHandler, user: User) {
    let mut context = CContext {
        context: c,
        answerable: true,
    };
    with_message(m, |message| {
        // SAFETY: the program that bound the handler promised that it is of this type and
        // may be called with `user` until the port is bound anew; the context and the
        // message live until it returns.
        unsafe { handler(&raw mut context, message, user.get()) };
    });
}

/// Asks a C function where a message goes.
pub(super) fn place(m: &Message<'_>, placing: CPlacing, user: User) -> Placement {
    let (mut start, mut length) = (null_mut(), 0);
    // SAFETY: as for handlers.
    let to = with_message(m, |message| unsafe {
        placing(message, &raw mut start, &raw mut length, user.get())
    });
    match to {
        // The buffer is cut to the message's length.
        // SAFETY: promised by the program that bound the function.
        INTO => match unsafe { buffer(start, length.min(m.total as usize)) } {
            Ok(Some(buffer)) => Placement::Into(buffer),
            // Without valid memory the whole message is cut off.
            _ => Placement::Into(Vec::new().into()),
        },
        LATER => Placement::Later,
        _ => Placement::Here,
    }
}

/// Runs a C error handler.
pub(super) fn handle_event(c: &mut Context<'_>, e: &Event, handler: CErrorHandler, user: User) {
    let size = size_of::<CEvent>() as u32;
    let event = match *e {
        Event::TooLong {
            from,
            port,
            bytes,
            room,
        } => CEvent {
            kind: TOO_LONG,
            rank: from,
            port,
            bytes,
            room,
            ..CEvent::default()
        },
        Event::Refused {
            to,
            priority,
            flow,
            number,
        } => CEvent {
            kind: REFUSED,
            rank: to,
            priority: priority as u8,
            flow,
            number: number.0,
            ..CEvent::default()
        },
        Event::PeerDead { rank, why, lost } => CEvent {
            kind: PEER_DEAD,
            rank,
            lost,
            error: -Errno::from(why).0,
            status: match why {
                Death::Exited(code) => code,
                Death::Killed(signal) => -signal,
                Death::CutOff(failure) => failure.errno(),
                _ => 0,
            },
            ..CEvent::default()
        },
        Event::PeerBack { rank } => CEvent {
            kind: PEER_BACK,
            rank,
            ..CEvent::default()
        },
        Event::PeerCome { rank } => CEvent {
            kind: PEER_COME,
            rank,
            ..CEvent::default()
        },
        Event::PeerSilent { rank, failure } => CEvent {
            kind: PEER_SILENT,
            rank,
            status: failure.map_or(0, Failure::errno),
            ..CEvent::default()
        },
        // C has no kind for this event.
        _ => return,
    };
    let event = CEvent { size, ..event };
    let mut context = CContext {
        context: c,
        answerable: false,
    };
    // SAFETY: as in [`handle`].
    unsafe { handler(&raw mut context, &raw const event, user.get()) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_arg(message: *const CMessage, index: u32) -> u64 {
    // SAFETY: null or the running handler's message.
    match unsafe { message.as_ref() } {
        // SAFETY: `args` has `arg_count` words.
        Some(m) if index < m.arg_count => unsafe { m.args.add(index as usize).read() },
        _ => 0,
    }
}

interface! {
    fn portolan_context_rank(c: *const CContext<'_, '_>) -> i64 {
        c = context(c); c.context.rank()
    }

    fn portolan_context_restarts(c: *const CContext<'_, '_>, rank: u32) -> i64 {
        c = context(c); c.context.restarts(rank)?
    }

    fn portolan_context_size(c: *const CContext<'_, '_>) -> i64 {
        c = context(c); c.context.size()
    }

    fn portolan_reply(
        c: *mut CContext<'_, '_>,
        port: u16,
        args: *const u64,
        arg_count: u32,
        data: *const c_void,
        length: usize,
    ) -> c_int {
        c = context(c);
        if !c.answerable {
            return Err(EINVAL);
        }
        // SAFETY: promised by the caller.
        let (args, data) = unsafe { (super::send::args(args, arg_count)?, bytes(data, length)?) };
        c.context.reply_to(port, args, data)?;
    }

    fn portolan_context_send(
        c: *mut CContext<'_, '_>,
        rank: u32,
        port: u16,
        data: *const c_void,
        length: usize,
        options: *const CSendOptions,
    ) -> c_int {
        c = context(c), o = Sending::read(options), data = bytes(data, length);
        let number = c.context.send_with(rank, port, &o.options, data)?;
        o.number.store(number.0);
    }

    fn portolan_context_post_message(
        c: *mut CContext<'_, '_>,
        rank: u32,
        port: u16,
        data: *const c_void,
        length: usize,
        options: *const CSendOptions,
        op: *mut u64,
    ) -> c_int {
        op = Slot::begun(op, 0), c = context(c), o = Sending::read(options),
        data = bytes(data, length);
        // SAFETY: the caller leaves the bytes alone until the operation ends.
        let from = unsafe { Gather::lent(data.as_ptr(), data.len()) };
        let begun = c.context.post_message(rank, port, &o.options, from).map_err(|(e, _)| e)?;
        op.store(begun.0);
    }

    fn portolan_context_bind(
        c: *mut CContext<'_, '_>,
        port: u16,
        to: *const CBinding,
    ) -> c_int {
        c = context(c), to = binding(to);
        c.context.bind(port, to)?
    }

    fn portolan_context_unbind(c: *mut CContext<'_, '_>, port: u16) -> c_int {
        c = context(c); c.context.close_port(port)?
    }

    fn portolan_context_resume_port(c: *mut CContext<'_, '_>, port: u16) -> c_int {
        c = context(c); c.context.resume_port(port)
    }

    fn portolan_context_set_buffer(
        c: *mut CContext<'_, '_>,
        port: u16,
        start: *mut c_void,
        length: usize,
        old: *mut *mut c_void,
    ) -> c_int {
        c = context(c), new = buffer(start, length), old = Slot::optional(old);
        old.store(old_buffer(c.context.set_buffer(port, new)))
    }
}
