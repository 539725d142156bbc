//! What we are measured beside: the kernel's sockets, bare hardware and memory,
//! and other people's programs.

pub mod bare;
pub mod bsplib;
pub mod floor;
pub mod forger;
pub mod kernel;
pub mod memcpy;
pub mod mpi;
pub mod mpi_probe;
pub mod nas;
pub mod netpipe;
pub mod program;
pub mod sockets;
pub mod tcp;
pub mod tcp_flow;
pub mod tls;
pub mod ucx;
