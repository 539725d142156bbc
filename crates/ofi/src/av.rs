//! Address vectors: the addresses that a program has inserted, for all endpoints bound to it.

use std::ffi::{c_char, c_int, c_void};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, Once};

use portolan::c_edge::Errno;
use portolan::{c_edge, place_of};

use crate::abi::{self, FidAv, FidDomain};
use crate::attachment::Attachment;
use crate::domain::Domain;
use crate::error::{EINVAL, ENOENT, ENOSYS, Result, calls, edge};
use crate::fid::{
    Head, Object, fid, give, given, lock, no_bind, no_call, no_control, object, ops, shared,
};
use crate::name::{Address, Family};

#[derive(Default)]
struct State {
    /// Indexed by name (`fi_addr_t`).
    addresses: Vec<Option<Address>>,
    free: Vec<u32>,
    attached: Vec<Arc<Attachment>>,
}

#[repr(C)]
pub struct Av {
    head: Head<FidAv>,
    domain: Arc<Domain>,
    state: Mutex<State>,
}

// SAFETY: it begins with a head of that class.
unsafe impl Object for Av {
    const CLASS: usize = abi::CLASS_AV;
}

static FID_OPS: abi::Ops = ops::<Av>(no_bind, no_control);
static OPS: abi::OpsAv = abi::OpsAv {
    size: size_of::<abi::OpsAv>(),
    insert,
    insertsvc: no_call,
    insertsym: no_call,
    remove,
    lookup,
    straddr,
    av_set: no_call,
    insert_auth_key: no_call,
    lookup_auth_key: no_call,
    set_user_id: no_call,
    lookup2: no_call,
};

calls! {
    /// `fi_av_open`.
    fn open(domain: *mut FidDomain, attr: *mut abi::AvAttr, av: *mut *mut FidAv, context: *mut c_void) -> c_int {
        let (domain, attr) = (shared::<Domain, _>(domain)?, given(attr)?);
        // Not supported: shared between processes, several contexts, asynchronous.
        if !attr.name.is_null() || attr.rx_ctx_bits > 0 || attr.flags != 0 {
            return Err(ENOSYS);
        }
        if attr.kind > abi::AV_TABLE {
            return Err(EINVAL);
        }
        domain.expect_peers(attr.count);
        let made = Arc::new(Av {
            head: Head::new(FidAv {
                fid: fid::<Av>(context, &FID_OPS),
                ops: &raw const OPS,
            }),
            domain,
            state: Mutex::default(),
        });
        give(made, av);
        Ok(0)
    }
}

impl Av {
    /// Adds all addresses to an endpoint that is enabled.
    pub fn attach(&self, attachment: &Arc<Attachment>) -> Result<()> {
        let mut state = lock(&self.state);
        for (name, address) in (0..).zip(&state.addresses) {
            if let Some(address) = address {
                attachment.add(name, address)?;
            }
        }
        state.attached.push(Arc::clone(attachment));
        Ok(())
    }

    /// Where a peer listens. `None` also while another call holds the lock, for which an
    /// endpoint's handler may not wait.
    pub fn place(&self, name: abi::Addr) -> Option<SocketAddr> {
        let state = self.state.try_lock().ok()?;
        let address = state.addresses.get(usize::try_from(name).ok()?)?;
        place_of(address.as_ref()?)
    }

    pub fn detach(&self, attachment: &Arc<Attachment>) {
        let mut state = lock(&self.state);
        state.attached.retain(|it| !Arc::ptr_eq(it, attachment));
    }
}

impl State {
    fn insert(&mut self, address: &Address) -> Result<u32> {
        let place = place_of(address).ok_or(EINVAL)?;
        if place.port() == 0 || place.ip().is_unspecified() {
            return Err(EINVAL);
        }
        let name = match self.free.pop() {
            Some(name) => name,
            None => {
                self.addresses.push(None);
                (self.addresses.len() - 1) as u32
            }
        };
        for (at, attached) in self.attached.iter().enumerate() {
            if let Err(why) = attached.add(name, address) {
                let others = self.other_name(name, address);
                self.attached[..at]
                    .iter()
                    .for_each(|it| it.remove(name, others));
                self.free.push(name);
                return Err(why);
            }
        }
        self.addresses[name as usize] = Some(*address);
        Ok(name)
    }

    /// Another name of the same address.
    fn other_name(&self, name: u32, address: &Address) -> Option<u32> {
        let mut all = (0..).zip(&self.addresses);
        all.find_map(|(other, it)| (other != name && it.as_ref() == Some(address)).then_some(other))
    }

    fn remove(&mut self, name: abi::Addr) -> Result<()> {
        let at = usize::try_from(name).map_err(|_| EINVAL)?;
        let taken = self.addresses.get_mut(at).and_then(Option::take);
        let address = taken.ok_or(EINVAL)?;
        let name = at as u32;
        let other = self.other_name(name, &address);
        self.attached.iter().for_each(|it| it.remove(name, other));
        self.free.push(name);
        Ok(())
    }
}

calls! {
    fn insert(av: *mut FidAv, addresses: *const c_void, count: usize, names: *mut abi::Addr, flags: u64, context: *mut c_void) -> c_int {
        let av: &Av = object(av)?;
        if flags & !(abi::MORE | abi::SYNC_ERR) != 0 {
            return Err(EINVAL);
        }
        let family = av.domain.family;
        let bytes = count.checked_mul(family.bytes()).ok_or(EINVAL)?;
        let given: &[u8] = c_edge::slice(addresses.cast(), bytes)?;
        let errors = if flags & abi::SYNC_ERR != 0 {
            context.cast::<c_int>()
        } else {
            std::ptr::null_mut()
        };
        let mut state = lock(&av.state);
        let mut inserted = 0;
        for (at, name) in given.chunks_exact(family.bytes()).enumerate() {
            let address = family.address(name).ok_or_else(|| no_address(family, name));
            let result = address.and_then(|it| state.insert(&it));
            inserted += c_int::from(result.is_ok());
            let name = result.map_or(abi::ADDR_NOTAVAIL, u64::from);
            if !names.is_null() {
                names.add(at).write(name);
            }
            if !errors.is_null() {
                errors.add(at).write(result.err().map_or(0, |why| why.0));
            }
        }
        Ok(inserted)
    }

    fn remove(av: *mut FidAv, names: *mut abi::Addr, count: usize, _flags: u64) -> c_int {
        let av: &Av = object(av)?;
        let names = c_edge::slice(names.cast_const(), count)?;
        let mut state = lock(&av.state);
        let mut result = Ok(0);
        for &name in names {
            if let Err(why) = state.remove(name) {
                result = Err(why);
            }
        }
        result
    }

    fn lookup(av: *mut FidAv, name: abi::Addr, address: *mut c_void, bytes: *mut usize) -> c_int {
        let av: &Av = object(av)?;
        let state = lock(&av.state);
        let found = usize::try_from(name)
            .ok()
            .and_then(|at| state.addresses.get(at)?.as_ref());
        let found = found.ok_or(ENOENT)?;
        // A name that does not fit is cut, and the length says so.
        let _ = copy_name(av.domain.family, found, address, bytes)?;
        Ok(0)
    }
}

static OTHER_FAMILY: Once = Once::new();

/// Returns the error for a name that is no address of this family. Prints a hint once if it is
/// of the other family.
fn no_address(family: Family, name: &[u8]) -> Errno {
    let other = match family {
        Family::V4 => Family::V6,
        Family::V6 => Family::V4,
    };
    if name[1] == other as u8 {
        OTHER_FAMILY.call_once(|| {
            c_edge::tell(format_args!(
                "portolan: libfabric's peer has an address of IPv{}, this process has one of \
                 IPv{}: give all processes the same, by PORTOLAN_INTERFACE",
                other as u8, family as u8
            ));
        });
    }
    EINVAL
}

/// Copies the name of an address, as far as it fits, and stores its length. False: it was cut.
///
/// # Errors
/// `bytes` is null.
///
/// # Safety
/// `bytes` is null or may be written, `to` for as many bytes as that says.
pub unsafe fn copy_name(
    family: Family,
    address: &Address,
    to: *mut c_void,
    bytes: *mut usize,
) -> Result<bool> {
    // SAFETY: as promised.
    let room = *unsafe { given(bytes) }?;
    let name = &family.name(address)[..family.bytes()];
    let n = room.min(name.len());
    // SAFETY: as promised.
    unsafe {
        if !to.is_null() {
            to.cast::<u8>().copy_from_nonoverlapping(name.as_ptr(), n);
        }
        bytes.write(name.len());
    }
    Ok(!to.is_null() && n == name.len())
}

unsafe extern "C" fn straddr(
    av: *mut FidAv,
    name: *const c_void,
    text: *mut c_char,
    bytes: *mut usize,
) -> *const c_char {
    let written: c_int = edge(|| {
        // SAFETY: promised by the program, as all below.
        let (av, room): (&Av, _) = unsafe { (object(av)?, *given(bytes)?) };
        let family = av.domain.family;
        // SAFETY: as promised.
        let name = unsafe { c_edge::slice(name.cast(), family.bytes()) }?;
        let place = family.address(name).as_ref().and_then(place_of);
        let said = place.map_or("no address".to_owned(), |place| place.to_string());
        // SAFETY: as promised.
        let length = unsafe { c_edge::store_text(text, room, &format!("portolan://{said}")) };
        // SAFETY: as promised.
        unsafe { bytes.write(length as usize + 1) };
        Ok(0)
    });
    if written == 0 { text } else { std::ptr::null() }
}
