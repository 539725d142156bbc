//! Thin, safe wrappers of system calls. They decide nothing, and they enter
//! the kernel directly: no libc function stands on the data path. [`pmix`] wraps
//! a library that is loaded when it is asked for.

pub mod barrier;
pub mod bpf;
pub mod calls;
pub mod children;
pub mod clock;
pub mod closing;
pub mod doorbell;
pub mod environment;
pub mod epoll;
pub mod ethtool;
pub mod features;
pub mod files;
pub mod futex;
pub mod inherit;
pub mod lives;
pub mod memory;
pub mod missing;
pub mod net;
pub mod pmix;
pub mod process;
pub mod raw;
pub mod shared_doorbell;
pub mod signals;
pub mod slice;
pub mod socket;
pub mod tap;
pub mod tell;
pub mod ticks;
pub mod xdp;
