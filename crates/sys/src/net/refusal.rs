//! Why a driver takes no XDP program: a link (`BPF_LINK_CREATE`) gives an error
//! number only, a request by rtnetlink the driver's own words as well.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use super::netlink::{Attributes, NLM_F_REQUEST, NLMSG_ERROR, Netlink, push_attribute, word};
use super::socket::set_option;

const SOL_NETLINK: i32 = 270;
const NETLINK_EXT_ACK: i32 = 11;
const NLM_F_ACK: u16 = 4;
const NLMSGERR_ATTR_MSG: u16 = 1;
const RTM_SETLINK: u16 = 19;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_FD: u16 = 1;
const IFLA_XDP_FLAGS: u16 = 3;
const XDP_FLAGS_UPDATE_IF_NOEXIST: u32 = 1;
const XDP_FLAGS_DRV_MODE: u32 = 4;
/// Bytes of `struct ifinfomsg`.
const HEAD: usize = 16;

impl Netlink {
    /// Offers `program`, which the driver of interface `index` has refused, once
    /// more; gives the reason in the driver's words, if it has some. Should the
    /// driver take it now, it is taken off again.
    #[must_use]
    pub fn why_no_xdp(&self, index: u32, program: BorrowedFd<'_>) -> Option<String> {
        set_option(self.0.as_fd(), SOL_NETLINK, NETLINK_EXT_ACK, 1).ok()?;
        let mut why = None;
        let offer = |fd: i32, flags: u32, why: &mut Option<String>| {
            let mut body = vec![0; HEAD];
            body[4..8].copy_from_slice(&index.to_ne_bytes());
            let mut xdp = Vec::new();
            push_attribute(&mut xdp, IFLA_XDP_FD, &fd.to_ne_bytes());
            push_attribute(&mut xdp, IFLA_XDP_FLAGS, &flags.to_ne_bytes());
            push_attribute(&mut body, IFLA_XDP, &xdp);
            self.request(
                RTM_SETLINK,
                NLM_F_REQUEST | NLM_F_ACK,
                &body,
                |kind, answer| {
                    if kind == NLMSG_ERROR {
                        *why = reason(answer);
                    }
                },
            )
        };
        let flags = XDP_FLAGS_DRV_MODE | XDP_FLAGS_UPDATE_IF_NOEXIST;
        if offer(program.as_raw_fd(), flags, &mut why).is_ok() {
            let _ = offer(-1, XDP_FLAGS_DRV_MODE, &mut None);
        }
        why
    }
}

/// The words of an error: behind its number and the request that it is about.
fn reason(answer: &[u8]) -> Option<String> {
    let request = word(answer.get(4..)?)? as usize;
    let attributes = answer.get(4 + request.next_multiple_of(4)..)?;
    let mut words = Attributes(attributes).filter(|(kind, _)| *kind == NLMSGERR_ATTR_MSG);
    let text = words.next()?.1.split(|byte| *byte == 0).next()?;
    Some(String::from_utf8_lossy(text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_stands_behind_the_request() {
        let mut answer = (-95_i32).to_ne_bytes().to_vec();
        answer.extend(18_u32.to_ne_bytes());
        answer.extend([7; 14 + 2]);
        assert_eq!(reason(&answer), None);
        push_attribute(&mut answer, 2, &[9; 3]);
        push_attribute(&mut answer, NLMSGERR_ATTR_MSG, b"too long\0");
        assert_eq!(reason(&answer).as_deref(), Some("too long"));
        for cut in 0..answer.len() {
            let _ = reason(&answer[..cut]);
        }
    }

    #[test]
    fn an_interface_that_is_not_there_refuses() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let netlink = Netlink::open().unwrap();
        // No words: the kernel has not got as far as the driver.
        assert_eq!(netlink.why_no_xdp(u32::MAX >> 1, file.as_fd()), None);
    }
}
