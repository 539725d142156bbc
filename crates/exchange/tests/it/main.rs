//! Tests of `portolan-exchange`: a program for all of them, which is linked once.

mod common;
mod edges;
mod handover;
mod hostile;
mod inline;
mod keys;
mod model;
mod onesided;
mod pulls;
mod pushed;
mod share;
