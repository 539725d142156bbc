//! Tests of `portolan-runtime`: a program for all of them, which is linked once.

mod address_space;
mod atomics;
mod close;
mod common;
mod cut_off;
mod direct;
mod edges;
mod handed_over;
mod hostile;
mod leave;
mod lengths;
mod listeners;
mod many;
mod matched;
mod messages;
mod onesided;
mod placing;
mod progress;
mod rebound;
mod returned;
mod scribbled;
mod share;
mod spaces;
mod stopped;
mod told;
