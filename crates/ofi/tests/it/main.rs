//! Tests of `portolan-ofi`: a program for all of them, which is linked once.

mod layout;
mod provider;
