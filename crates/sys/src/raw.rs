//! The bare entry into the kernel, for calls that rustix does not have.
//!
//! It is inline assembly, so that no library that replaces libc's functions
//! stands between us and the kernel. x86-64 has run; aarch64 is written from
//! the kernel's calling convention and has not run.

pub use rustix::io::Errno;

/// Numbers of the system calls that this workspace makes without rustix.
#[cfg(target_arch = "x86_64")]
pub mod number {
    #![allow(missing_docs)]
    pub const IOCTL: usize = 16;
    pub const MINCORE: usize = 27;
    pub const SENDTO: usize = 44;
    pub const RECVFROM: usize = 45;
    pub const SENDMSG: usize = 46;
    pub const RECVMSG: usize = 47;
    pub const SETSOCKOPT: usize = 54;
    pub const GETSOCKOPT: usize = 55;
    pub const RECVMMSG: usize = 299;
    pub const SENDMMSG: usize = 307;
    pub const SCHED_SETATTR: usize = 314;
    pub const SCHED_GETATTR: usize = 315;
    pub const BPF: usize = 321;
    pub const CLOSE_RANGE: usize = 436;
}

/// Numbers of the system calls that this workspace makes without rustix.
#[cfg(target_arch = "aarch64")]
pub mod number {
    #![allow(missing_docs)]
    pub const IOCTL: usize = 29;
    pub const SENDTO: usize = 206;
    pub const RECVFROM: usize = 207;
    pub const SETSOCKOPT: usize = 208;
    pub const GETSOCKOPT: usize = 209;
    pub const SENDMSG: usize = 211;
    pub const RECVMSG: usize = 212;
    pub const MINCORE: usize = 232;
    pub const RECVMMSG: usize = 243;
    pub const SENDMMSG: usize = 269;
    pub const SCHED_SETATTR: usize = 274;
    pub const SCHED_GETATTR: usize = 275;
    pub const BPF: usize = 280;
    pub const CLOSE_RANGE: usize = 436;
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("portolan-sys knows the system call convention of x86_64 and aarch64 only");

/// Largest errno that the kernel encodes in a result (`MAX_ERRNO`).
const ERRNO_MAX: usize = 4095;

/// Makes system call `number`; unused arguments are 0.
///
/// # Errors
/// What the kernel answered.
///
/// # Safety
/// The arguments must fulfil the contract of that call: every pointer among
/// them is valid for what the kernel reads or writes there.
#[inline(always)]
pub unsafe fn syscall(number: usize, args: [usize; 6]) -> Result<usize, Errno> {
    let result: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the kernel changes rax, rcx and r11 only, and memory as the
    // caller has vouched for; it leaves the stack alone.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            in("r9") args[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the kernel changes x0 only, and memory as the caller has
    // vouched for; it leaves the stack alone.
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") args[0] => result,
            in("x1") args[1],
            in("x2") args[2],
            in("x3") args[3],
            in("x4") args[4],
            in("x5") args[5],
            options(nostack),
        );
    }
    if result > usize::MAX - ERRNO_MAX {
        // A negated errno: at most 4095, so it fits.
        Err(Errno::from_raw_os_error(result.wrapping_neg() as i32))
    } else {
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_comes_back_as_errno() {
        // SAFETY: the descriptor is invalid, so the kernel reads nothing.
        let answer = unsafe { syscall(number::SENDTO, [usize::MAX, 0, 0, 0, 0, 0]) };
        assert_eq!(answer, Err(Errno::BADF));
    }
}
