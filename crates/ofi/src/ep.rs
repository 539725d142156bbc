//! Endpoints: bound to other objects, and then enabled, which opens an endpoint of the engine.

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use portolan::{Binding, Config, Endpoint, Message, c_edge, place_of};

use crate::abi::{self, Fid, FidDomain, FidEp};
use crate::attachment::{Attachment, Side};
use crate::av::{Av, copy_name};
use crate::cntr::Cntr;
use crate::cq::{Cq, Event};
use crate::domain::Domain;
use crate::error::{
    EBADFLAGS, EINVAL, EIO, ENOAV, ENOCQ, ENOPROTOOPT, ENOSYS, EOPBADSTATE, ETOOSMALL, Result,
    calls,
};
use crate::fid::{Head, Object, errno, fid, give, given, lock, no_call, object, ops, shared};
use crate::name::Family;
use crate::{atomic, info, message, rma};

/// The port where signals of puts arrive.
pub const SIGNALS: u16 = 1;

/// A queue, and whether successes are reported there only on request (`FI_COMPLETION`).
type Queue = (Arc<Cq>, bool);

/// The objects that are bound to an endpoint.
#[derive(Default)]
struct Bound {
    av: Option<Arc<Av>>,
    tx: Option<Queue>,
    rx: Option<Queue>,
    /// In the order of [`COUNTED`].
    counters: [Option<Arc<Cntr>>; 6],
}

/// The events that counters count.
pub const COUNTED: [u64; 6] = [
    abi::SEND,
    abi::RECV,
    abi::READ,
    abi::WRITE,
    abi::REMOTE_READ,
    abi::REMOTE_WRITE,
];

impl Bound {
    /// Opens the endpoint's counters for bound ones that have none there yet.
    fn count(&self, attachment: &Arc<Attachment>) -> Result<()> {
        for (cntr, id) in self.counters.iter().zip(attachment.counters.all()) {
            if let (Some(cntr), None) = (cntr, id.get()) {
                let _ = id.set(cntr.at(attachment)?);
            }
        }
        Ok(())
    }
}

#[repr(C)]
pub struct Ep {
    head: Head<FidEp>,
    domain: Arc<Domain>,
    directed: bool,
    /// The address at which to listen; `None`: any.
    place: Option<SocketAddr>,
    tx_flags: AtomicUsize,
    rx_flags: AtomicUsize,
    min_multi_recv: AtomicUsize,
    bound: Mutex<Bound>,
    attached: OnceLock<Arc<Attachment>>,
}

// SAFETY: it begins with a head of that class.
unsafe impl Object for Ep {
    const CLASS: usize = abi::CLASS_EP;

    fn end(&self) -> Result<()> {
        if let Some(attachment) = self.attached.get() {
            self.detach(attachment);
            // The endpoint is closed in either case.
            if let Err(portolan::WaitError::TimedOut) = attachment.endpoint.close() {
                c_edge::tell(format_args!(
                    "portolan: libfabric's endpoint is closed, though messages that it had accepted \
                     may not have arrived within close_ms: their receivers do not answer, or have \
                     no room for them (late_bytes) before they receive"
                ));
            }
        }
        Ok(())
    }
}

static FID_OPS: abi::Ops = ops::<Ep>(bind, control);
static OPS: abi::OpsEp = abi::OpsEp {
    size: size_of::<abi::OpsEp>(),
    cancel: message::cancel,
    getopt,
    setopt,
    tx_ctx: no_call,
    rx_ctx: no_call,
    rx_size_left: size_left,
    tx_size_left: size_left,
    export_xpu: no_call,
};
static CM: abi::OpsCm = abi::OpsCm {
    size: size_of::<abi::OpsCm>(),
    setname: no_call,
    getname,
    getpeer: no_call,
    connect: no_call,
    listen: no_call,
    accept: no_call,
    reject: no_call,
    shutdown: no_call,
    join: no_call,
};

/// `fi_endpoint`.
pub unsafe extern "C" fn open(
    domain: *mut FidDomain,
    info: *mut abi::Info,
    ep: *mut *mut FidEp,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the same promises.
    unsafe { open2(domain, info, ep, 0, context) }
}

calls! {
    /// `fi_endpoint2`.
    fn open2(domain: *mut FidDomain, info: *mut abi::Info, ep: *mut *mut FidEp, flags: u64, context: *mut c_void) -> c_int {
        let (domain, info) = (shared::<Domain, _>(domain)?, given(info)?);
        if flags != 0 {
            return Err(EBADFLAGS);
        }
        info::check(info)?;
        let family = domain.family;
        if Family::asked(info)?.is_some_and(|it| it != family) {
            return Err(EINVAL);
        }
        let place = if info.src_addrlen == family.bytes() && !info.src_addr.is_null() {
            let name = c_edge::slice(info.src_addr.cast_const().cast(), family.bytes())?;
            family.address(name).as_ref().and_then(place_of)
        } else {
            None
        };
        let tx = info.tx_attr.as_ref().map_or(0, |it| it.op_flags);
        let rx = info.rx_attr.as_ref().map_or(0, |it| it.op_flags);
        let made = Arc::new(Ep {
            head: Head::new(FidEp {
                fid: fid::<Ep>(context, &FID_OPS),
                ops: &raw const OPS,
                cm: &raw const CM,
                msg: &raw const message::MSG,
                rma: &raw const rma::OPS,
                tagged: &raw const message::TAGGED,
                atomic: &raw const atomic::OPS,
                collective: std::ptr::null(),
            }),
            directed: info.caps & abi::DIRECTED_RECV != 0,
            domain,
            place,
            tx_flags: AtomicUsize::new(tx as usize),
            rx_flags: AtomicUsize::new(rx as usize),
            min_multi_recv: AtomicUsize::new(64),
            bound: Mutex::default(),
            attached: OnceLock::new(),
        });
        give(made, ep);
        Ok(0)
    }
}

/// The enabled endpoint that a program passes.
///
/// # Safety
/// As [`object`].
#[inline(always)]
pub unsafe fn enabled<'a>(ep: *mut FidEp) -> Result<&'a Arc<Attachment>> {
    // SAFETY: as promised.
    let ep: &Ep = unsafe { object(ep) }?;
    ep.attached.get().ok_or(EOPBADSTATE)
}

/// Binds an object to an empty place.
fn put<T>(place: &mut Option<T>, it: T) -> Result<()> {
    if place.is_some() {
        return Err(EINVAL);
    }
    *place = Some(it);
    Ok(())
}

impl Ep {
    /// # Safety
    /// `to` is an object.
    unsafe fn bind(&self, to: *mut Fid, flags: u64) -> Result<()> {
        let mut bound = lock(&self.bound);
        // SAFETY: as promised, as all below.
        let class = unsafe { given(to) }?.fclass;
        if self.attached.get().is_some() && class != abi::CLASS_CNTR {
            return Err(EOPBADSTATE);
        }
        match class {
            // SAFETY: as promised.
            abi::CLASS_AV => put(&mut bound.av, unsafe { shared(to) }?),
            // Nothing is reported in event queues here.
            abi::CLASS_EQ => Ok(()),
            abi::CLASS_CQ => {
                let known = abi::SEND | abi::RECV | abi::SELECTIVE_COMPLETION;
                if flags & !known != 0 || flags & (abi::SEND | abi::RECV) == 0 {
                    return Err(EBADFLAGS);
                }
                // SAFETY: as promised.
                let cq: Arc<Cq> = unsafe { shared(to) }?;
                let selective = flags & abi::SELECTIVE_COMPLETION != 0;
                if flags & abi::SEND != 0 {
                    put(&mut bound.tx, (Arc::clone(&cq), selective))?;
                }
                if flags & abi::RECV != 0 {
                    put(&mut bound.rx, (cq, selective))?;
                }
                Ok(())
            }
            abi::CLASS_CNTR => {
                if flags & !COUNTED.iter().fold(0, |a, b| a | b) != 0 || flags == 0 {
                    return Err(EBADFLAGS);
                }
                // SAFETY: as promised.
                let cntr: Arc<Cntr> = unsafe { shared(to) }?;
                for (flag, place) in COUNTED.into_iter().zip(&mut bound.counters) {
                    if flags & flag != 0 {
                        put(place, Arc::clone(&cntr))?;
                    }
                }
                // OpenSHMEM binds counters to an enabled endpoint.
                self.attached.get().map_or(Ok(()), |it| {
                    bound.count(it)?;
                    self.domain.count_at(it)
                })
            }
            _ => Err(EINVAL),
        }
    }

    fn config(&self) -> Config {
        let config = Config::default().threads(self.domain.threads);
        let mut config = config.regions_for_added();
        if let Some(place) = self.place {
            if !place.ip().is_unspecified() {
                config = config.set("interface", place.ip());
            }
            if place.port() != 0 {
                config = config.set("port", place.port());
            }
        }
        // More than the default of `peers_max`.
        if self.domain.peers() > 4096 {
            config = config.set("peers_max", self.domain.peers());
        }
        config
    }

    fn enable(&self) -> Result<()> {
        let bound = lock(&self.bound);
        if self.attached.get().is_some() {
            return Err(EOPBADSTATE);
        }
        let av = bound.av.as_ref().ok_or(ENOAV)?;
        if bound.tx.is_none() && bound.rx.is_none() {
            return Err(ENOCQ);
        }
        let opened = Endpoint::open_standalone(self.config());
        let endpoint = opened.map_err(|why| {
            // An MPI library says only that none of its transports works, not why.
            c_edge::tell(format_args!(
                "portolan: libfabric's endpoint cannot be opened: {why}"
            ));
            c_edge::Errno::from(&why)
        })?;
        let family = self.domain.family;
        let place = place_of(&endpoint.address()).ok_or(EIO)?;
        if Family::of(&place.ip()) != family {
            c_edge::tell(format_args!(
                "portolan: libfabric's endpoint has the address {place}, and its fi_info is for \
                 IPv{}: call fi_getinfo anew, or set PORTOLAN_INTERFACE",
                family as u8
            ));
            return Err(EINVAL);
        }
        let mut queues = Known::default();
        let mut side = |queue: &Option<Queue>, flags: &AtomicUsize| -> Result<Side> {
            let mut side = Side {
                op_flags: flags.load(Ordering::Relaxed) as u64,
                ..Side::default()
            };
            if let Some((cq, selective)) = queue {
                side.queue = Some(queues.get(cq, || endpoint.open_queue().map_err(errno))?);
                side.selective = *selective;
            }
            Ok(side)
        };
        let sides = [
            side(&bound.tx, &self.tx_flags)?,
            side(&bound.rx, &self.rx_flags)?,
        ];
        let min = self.min_multi_recv.load(Ordering::Relaxed);
        let attachment = Arc::new(Attachment::new(endpoint, sides, self.directed, min));
        let attached = (|| {
            tell_signals(&attachment, bound.rx.as_ref())?;
            tell_lost(&attachment, av)?;
            for (cq, queue) in &queues.0 {
                cq.attach(&attachment, *queue)?;
            }
            bound.count(&attachment)?;
            av.attach(&attachment)?;
            self.domain.attach(&attachment)
        })();
        if let Err(why) = attached {
            drop(bound);
            self.detach(&attachment);
            return Err(why);
        }
        let _ = self.attached.set(attachment);
        Ok(())
    }

    /// Puts an event that is no completion of the engine in the queue of receives.
    pub fn tell_receiver(&self, event: Event) {
        if let Some((cq, _)) = &lock(&self.bound).rx {
            cq.push(event);
        }
    }

    fn detach(&self, attachment: &Arc<Attachment>) {
        let bound = lock(&self.bound);
        self.domain.detach(attachment);
        if let Some(av) = &bound.av {
            av.detach(attachment);
        }
        for (cq, _) in bound.tx.iter().chain(&bound.rx) {
            cq.detach(attachment);
        }
        attachment.leave_counters();
    }
}

/// Values that were made for objects, one for each.
struct Known<T, I>(Vec<(Arc<T>, I)>);

impl<T, I> Default for Known<T, I> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T, I: Copy> Known<T, I> {
    fn get(&mut self, of: &Arc<T>, make: impl FnOnce() -> Result<I>) -> Result<I> {
        if let Some((_, known)) = self.0.iter().find(|(it, _)| Arc::ptr_eq(it, of)) {
            return Ok(*known);
        }
        let made = make()?;
        self.0.push((Arc::clone(of), made));
        Ok(made)
    }
}

/// Queues an event for each put of a peer that carries data for this program.
fn tell_signals(attachment: &Arc<Attachment>, rx: Option<&Queue>) -> Result<()> {
    let cq = rx.map(|(cq, _)| Arc::clone(cq));
    let names = Arc::downgrade(attachment);
    let told = move |_: &mut portolan::Context<'_>, m: &Message<'_>| {
        if let Some(cq) = &cq {
            let flags = abi::RMA | abi::REMOTE_WRITE | abi::REMOTE_CQ_DATA;
            let mut event = Event::new(0, flags);
            event.entry.data = m.arg(0);
            event.entry.len = m.arg(1) as usize;
            let name = names.upgrade().map(|it| it.name_of(m.from));
            event.from = name.unwrap_or(abi::ADDR_NOTAVAIL);
            cq.push(event);
        }
    };
    let bound = attachment.endpoint.bind(SIGNALS, Binding::to(told));
    bound.map_err(errno)
}

/// Prints a line for each lost peer: an MPI library reports only an internal failure.
fn tell_lost(attachment: &Arc<Attachment>, av: &Arc<Av>) -> Result<()> {
    let names = (Arc::downgrade(attachment), Arc::downgrade(av));
    let told = move |_: &mut portolan::Context<'_>, event: &portolan::Event| {
        if let portolan::Event::PeerDead { rank, why, lost } = *event
            && (why.is_own_finding() || lost > 0)
            && let (Some(attachment), Some(av)) = (names.0.upgrade(), names.1.upgrade())
        {
            let place = av.place(attachment.name_of(rank));
            let place = place.map_or("unknown".to_owned(), |it| it.to_string());
            let what = if why.is_own_finding() {
                "is given up"
            } else {
                "is gone"
            };
            let lost = match lost {
                0 => String::new(),
                1 => "; a message of its is lost".to_owned(),
                more => format!("; {more} messages of its are lost"),
            };
            c_edge::tell(format_args!(
                "portolan: libfabric's peer at {place} {what}: {why}{lost}"
            ));
        }
    };
    attachment.endpoint.on_error(told).map_err(errno)
}

calls! {
    fn bind(ep: *mut Fid, to: *mut Fid, flags: u64) -> c_int {
        let ep: &Ep = object(ep)?;
        ep.bind(to, flags)?;
        Ok(0)
    }

    fn control(ep: *mut Fid, command: c_int, arg: *mut c_void) -> c_int {
        let ep: &Ep = object(ep)?;
        match command {
            abi::ENABLE => ep.enable()?,
            abi::GETOPSFLAG | abi::SETOPSFLAG => {
                let flags = arg.cast::<u64>().as_mut().ok_or(EINVAL)?;
                let of = match *flags & (abi::SEND | abi::RECV) {
                    abi::SEND => &ep.tx_flags,
                    abi::RECV => &ep.rx_flags,
                    _ => return Err(EINVAL),
                };
                if command == abi::GETOPSFLAG {
                    *flags = of.load(Ordering::Relaxed) as u64;
                } else if ep.attached.get().is_some() {
                    return Err(EOPBADSTATE);
                } else {
                    let side = *flags & !(abi::SEND | abi::RECV);
                    of.store(side as usize, Ordering::Relaxed);
                }
            }
            _ => return Err(ENOSYS),
        }
        Ok(0)
    }

    fn getname(ep: *mut Fid, address: *mut c_void, bytes: *mut usize) -> c_int {
        let own = enabled(ep.cast())?.endpoint.address();
        let ep: &Ep = object(ep)?;
        if copy_name(ep.domain.family, &own, address, bytes)? {
            Ok(0)
        } else {
            Err(ETOOSMALL)
        }
    }
}

/// Checks that an option is one of the known endpoint options.
fn option_is(level: c_int, name: c_int, known: impl Fn(c_int) -> bool) -> Result<()> {
    if level == abi::OPT_ENDPOINT && known(name) {
        return Ok(());
    }
    Err(ENOPROTOOPT)
}

calls! {
    fn getopt(ep: *mut Fid, level: c_int, name: c_int, value: *mut c_void, bytes: *mut usize) -> c_int {
        let ep: &Ep = object(ep)?;
        option_is(level, name, |it| {
            (0..=abi::OPT_CM_DATA_SIZE).contains(&it) || abi::OPT_SIZES.contains(&it)
        })?;
        let room = *given(bytes)?;
        if room < size_of::<usize>() || value.is_null() {
            return Err(ETOOSMALL);
        }
        let found = match name - *abi::OPT_SIZES.start() {
            _ if name == abi::OPT_MIN_MULTI_RECV => ep.min_multi_recv.load(Ordering::Relaxed),
            _ if name == abi::OPT_CM_DATA_SIZE => 0,
            0..=2 => info::MESSAGE_MAX,
            3 => atomic::BYTES_MAX,
            _ => info::INJECT_MAX,
        };
        value.cast::<usize>().write(found);
        bytes.write(size_of::<usize>());
        Ok(0)
    }

    fn setopt(ep: *mut Fid, level: c_int, name: c_int, value: *const c_void, bytes: usize) -> c_int {
        let ep: &Ep = object(ep)?;
        option_is(level, name, |it| {
            it == abi::OPT_MIN_MULTI_RECV || abi::OPT_SIZES.contains(&it)
        })?;
        if bytes != size_of::<usize>() {
            return Err(EINVAL);
        }
        let wanted = *given(value.cast::<usize>())?;
        // The other options are hints, which change nothing.
        if name == abi::OPT_MIN_MULTI_RECV {
            ep.min_multi_recv.store(wanted, Ordering::Relaxed);
            if let Some(attachment) = ep.attached.get() {
                attachment.min_multi_recv.store(wanted, Ordering::Relaxed);
            }
        }
        Ok(0)
    }

    fn size_left(ep: *mut FidEp) -> isize {
        // The number of operations in flight has no limit.
        enabled(ep).map(|_| info::QUEUE_SIZE as isize)
    }
}
