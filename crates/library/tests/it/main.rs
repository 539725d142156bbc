//! Tests of `portolan-library`: a program for all of them, which is linked once.

mod atoll;
mod bsp;
mod c;
mod programs;
