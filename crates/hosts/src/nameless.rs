//! Files without a name, which programs of others read. They are there as long as this process
//! is, and whatever program it becomes.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd};

use crate::failure::{Context, Result};

/// A file without a name.
#[derive(Debug)]
pub struct Nameless(File);

impl Nameless {
    /// One that holds a text.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn new(text: &str) -> Result<Self> {
        let making = "making a file for another launcher";
        let written = memfd_create("portolan", MemfdFlags::CLOEXEC).context(making)?;
        let mut written = File::from(written);
        written.write_all(text.as_bytes()).context(making)?;
        // What is open to be written cannot be executed.
        File::open(path_of(&written)).context(making).map(Self)
    }

    /// By which other processes open it.
    pub fn path(&self) -> PathBuf {
        path_of(&self.0)
    }

    /// Keeps it when this process executes another program.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn keep(&self) -> Result<()> {
        keep(&self.0)
    }
}

/// By which other processes open a file of this one.
pub(crate) fn path_of(file: &File) -> PathBuf {
    Path::new("/proc")
        .join(std::process::id().to_string())
        .join("fd")
        .join(file.as_raw_fd().to_string())
}

/// Keeps a file when this process executes another program.
pub(crate) fn keep(file: &File) -> Result<()> {
    Ok(fcntl_setfd(file, FdFlags::empty())?)
}
