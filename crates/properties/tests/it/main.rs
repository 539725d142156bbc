//! Tests of `portolan-properties`: a program for all of them, which is linked once.

mod corpus;
mod exchange_input;
mod formats;
mod matching;
mod peers;
