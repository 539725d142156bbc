//! Tests of `portolan-portolan`: a program for all of them, which is linked once.

mod peers;
mod standalone;
