//! Tests of `portolan-seal`: a program for all of them, which is linked once.

mod agreement;
mod introduction;
mod known_answers;
mod suites;
mod vectors;
