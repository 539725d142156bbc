//! Tests of `portolan-link`: a program for all of them, which is linked once.

mod conformance;
mod onesided;
mod processes;
mod shm;
mod stops;
mod udp;
mod udp_network;
