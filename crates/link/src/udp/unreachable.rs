//! Closed ports, as ICMP errors tell of them.

use portolan_sys::raw::Errno;

use super::Udp;
use super::receive::Port;

/// Bytes of a packet that are looked at.
const QUOTE_BYTES: usize = 64;
/// Looks at one socket in a row: anybody can make it send errors.
const LOOKS_MAX: usize = 64;

/// Whether a call may have failed because a packet came back that an earlier one
/// sent: read, the error is gone, and says nothing of this call.
pub(super) const fn may_be_earlier(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::CONNREFUSED
            | Errno::HOSTUNREACH
            | Errno::NETUNREACH
            | Errno::HOSTDOWN
            | Errno::NONET
            | Errno::NOPROTOOPT
            | Errno::OPNOTSUPP
            | Errno::PROTO
            | Errno::MSGSIZE
            | Errno::ACCESS
    )
}

impl Udp {
    /// Whether [`Udp::take_unreachable`] may have something.
    #[inline]
    pub(crate) fn has_failed(&self) -> bool {
        let direct = self.direct.as_ref();
        self.main.failed.get() || direct.is_some_and(|direct| direct.port.failed.get())
    }

    /// Shows the beginning of each packet that found nobody since the last call
    /// at the port that it was sent to, as an ICMP error quotes it;
    /// nothing unless the link was opened with
    /// [`UdpConfig::icmp_errors`](super::UdpConfig::icmp_errors). Whoever asked for them
    /// has to take them: until then a wait on the link's descriptor ends at once.
    #[inline]
    pub fn take_unreachable(&mut self, mut sink: impl FnMut(&[u8])) {
        let wanted = self.options.icmp_errors;
        if self.main.failed.get() {
            take(&self.main, wanted, &mut sink);
        }
        if let Some(direct) = &self.direct
            && direct.port.failed.get()
        {
            take(&direct.port, wanted, &mut sink);
        }
    }
}

#[cold]
fn take(port: &Port, wanted: bool, sink: &mut impl FnMut(&[u8])) {
    let mut quote = [0; QUOTE_BYTES];
    for _ in 0..LOOKS_MAX {
        let taken = wanted.then(|| port.socket.take_icmp_error(&mut quote));
        let Some(Ok(packet)) = taken else {
            port.failed.set(false);
            return;
        };
        if packet.port_unreachable {
            sink(&quote[..packet.len]);
        }
    }
}
