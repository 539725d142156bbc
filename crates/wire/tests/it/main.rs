//! Tests of `portolan-wire`: a program for all of them, which is linked once.

mod chunks;
mod common;
mod corpus;
mod formats;
mod random;
mod seq;
