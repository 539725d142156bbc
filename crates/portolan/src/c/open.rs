//! Opening, closing, reading the state.

use std::ffi::{CStr, c_char, c_int};
use std::ptr::null_mut;

use super::error::{EINVAL, Errno};
use super::types::{CCounters, COptions, HELPER_OFF, HELPER_ON, Record, read};
use super::{Slot, edge, endpoint, store_text};
use crate::{Config, Endpoint, Misuse, OpenError, SpaceId, Threads, WaitError};

/// Maximum number of settings, by which an array without its final null is detected.
const SETTINGS_MAX: usize = 1024;

/// # Safety
/// `settings` is null or an array of C strings that ends with null.
unsafe fn settings(mut config: Config, settings: *const *const c_char) -> Result<Config, String> {
    if settings.is_null() {
        return Ok(config);
    }
    for at in 0..SETTINGS_MAX {
        // SAFETY: the array's end is not reached yet.
        let entry = unsafe { settings.add(at).read() };
        if entry.is_null() {
            return Ok(config);
        }
        // SAFETY: a C string, as the header asks.
        let text = unsafe { CStr::from_ptr(entry) }.to_string_lossy();
        match text.split_once('=') {
            Some((name, value)) => config = config.set(name, value),
            None => return Err(format!("setting {text:?} is not of the form NAME=VALUE")),
        }
    }
    Err("the array of settings does not end with a null pointer".to_owned())
}

/// # Safety
/// As for [`portolan_open`].
unsafe fn config(options: *const COptions) -> Result<Config, (Errno, String)> {
    if options.is_null() {
        return Ok(Config::default());
    }
    let wrong = |what: &str| Err((EINVAL, what.to_owned()));
    // SAFETY: see above.
    let o = unsafe { read(options) }.map_err(|e| {
        let what = "the options cannot be read: begin with portolan_options_init(), and use a \
                    library that is not older than the header";
        (e, what.to_owned())
    })?;
    let threads = match o.threads {
        0 | 1 => Threads::Single,
        2 => Threads::Serialized,
        3 => Threads::Multiple,
        _ => return wrong("options.threads is none of PORTOLAN_THREADS_*"),
    };
    let mut config = Config::default().threads(threads);
    config = match o.helper {
        0 => config,
        HELPER_ON => config.set("helper", "on"),
        HELPER_OFF => config.set("helper", "off"),
        _ => return wrong("options.helper is none of PORTOLAN_HELPER_*"),
    };
    if o.reserved != 0 {
        return wrong("options.reserved is not 0");
    }
    if o.takeover_us != 0 {
        config = config.set("takeover_us", o.takeover_us);
    }
    if o.close_ms != 0 {
        config = config.set("close_ms", o.close_ms);
    }
    // SAFETY: see above.
    unsafe { settings(config, o.settings) }.map_err(|what| (EINVAL, what))
}

/// Opens an endpoint as the options say, and stores its handle, or on failure the reason.
///
/// # Safety
/// As for [`portolan_open`].
pub(super) unsafe fn open_by(
    open: fn(Config) -> Result<Endpoint, OpenError>,
    handle: *mut *mut Endpoint,
    options: *const COptions,
    why: (*mut c_char, usize),
) -> Result<(), Errno> {
    // SAFETY: promised by the caller.
    let handle = unsafe { Slot::begun(handle, null_mut()) }?;
    // SAFETY: as above.
    let opened = unsafe { config(options) }
        .and_then(|c| open(c).map_err(|e| (Errno::from(&e), e.to_string())));
    let endpoint = opened.map_err(|(errno, text)| {
        // SAFETY: as above.
        unsafe { store_text(why.0, why.1, &text) };
        errno
    })?;
    handle.store(Box::into_raw(Box::new(endpoint)));
    Ok(())
}

interface! {
    fn portolan_open(
        handle: *mut *mut Endpoint,
        options: *const COptions,
        why: *mut c_char,
        why_bytes: usize,
    ) -> c_int {
        () = open_by(Endpoint::open, handle, options, (why, why_bytes)); ()
    }

    fn portolan_space(
        handle: *mut Endpoint,
        number: u32,
        space: *mut *mut Endpoint,
    ) -> c_int {
        endpoint = endpoint(handle), space = Slot::begun(space, null_mut());
        let opened = endpoint.space(SpaceId::new(number)?)?;
        space.store(Box::into_raw(Box::new(opened)));
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_close(handle: *mut Endpoint) -> c_int {
    if handle.is_null() {
        return 0;
    }
    edge(|| {
        // SAFETY: promised by the caller.
        let closed = unsafe { endpoint(handle) }?.close();
        if let Err(WaitError::Misuse(
            m @ (Misuse::WrongThread | Misuse::Concurrent | Misuse::InHandler),
        )) = closed
        {
            return Err(m.into());
        }
        // SAFETY: `portolan_open` made it of a box, and the caller passes it back.
        drop(unsafe { Box::from_raw(handle) });
        Ok(closed?)
    })
}

interface! {
    fn portolan_rank(handle: *const Endpoint) -> i64 {
        endpoint = endpoint(handle); endpoint.rank()
    }

    fn portolan_size(handle: *const Endpoint) -> i64 {
        endpoint = endpoint(handle); endpoint.size()
    }

    fn portolan_lane(
        handle: *mut Endpoint,
        rank: u32,
        text: *mut c_char,
        text_bytes: usize,
    ) -> c_int {
        endpoint = endpoint(handle);
        let (name, why) = endpoint.lane(rank)?;
        // SAFETY: promised by the caller.
        unsafe { store_text(text, text_bytes, &format!("{name}: {why}")) }
    }

    fn portolan_restarts(handle: *mut Endpoint, rank: u32) -> i64 {
        endpoint = endpoint(handle); endpoint.restarts(rank)?
    }

    fn portolan_ending(
        handle: *mut Endpoint,
        text: *mut c_char,
        text_bytes: usize,
    ) -> c_int {
        endpoint = endpoint(handle);
        let why = endpoint.ending()?;
        if let Some(why) = &why {
            // SAFETY: promised by the caller.
            unsafe { store_text(text, text_bytes, why) };
        }
        why.is_some()
    }

    fn portolan_peer_died(handle: *mut Endpoint, rank: u32) -> c_int {
        endpoint = endpoint(handle); endpoint.peer_died(rank)?
    }

    fn portolan_counters_read(
        handle: *mut Endpoint,
        counters: *mut CCounters,
    ) -> c_int {
        endpoint = endpoint(handle), c = endpoint.counters(), to = Record::one(counters);
        to.fill(&CCounters {
            size: 0,
            reserved: 0,
            sent: c.sent,
            bytes_sent: c.bytes_sent,
            received: c.received,
            bytes_received: c.bytes_received,
            kept: c.kept,
            not_now: c.not_now,
            refused: c.refused,
            deaths: c.deaths,
            helped: c.helped,
            sleeps: c.sleeps,
            tx_failed: c.tx_failed,
            no_credit: c.no_credit,
            packets_sent: c.protocol.packets_sent,
            packets_received: c.protocol.packets_received,
            resent: c.protocol.resent,
            packets_dropped: c.protocol.drops.total(),
        });
    }
}
