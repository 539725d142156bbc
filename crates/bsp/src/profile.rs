//! Costs of each superstep in this process, as a file of tab-separated columns
//! (`BSP_PROFILE`; `docs/bsp.md` names the columns, `portolan report` draws them).

use std::fs::{File, create_dir_all};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use portolan::Counters;

use crate::exchange::Volume;
use crate::measured::Measured;

const COLUMNS: &str = "superstep\tstart_us\tcompute_us\tcommunicate_us\twait_us\tsent_bytes\t\
                       received_bytes\tpackets\tacks\tresends\tduplicates";

/// Process that writes, and the costs measured for its number of processes.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a> {
    pub me: u32,
    pub size: u32,
    pub link: &'a str,
    pub measured: Measured,
}

pub struct Profile {
    path: PathBuf,
    file: BufWriter<File>,
    began: Instant,
    /// Time when the last sync returned, and when this one was called.
    returned: Instant,
    called: Instant,
    /// Time waited for heads since then.
    waited: Duration,
    before: Counters,
}

fn us(time: Duration) -> f64 {
    1e6 * time.as_secs_f64()
}

impl Profile {
    /// Begins the file of a process in a folder, which is created if it is missing.
    pub fn begin(folder: &Path, writer: &Writer<'_>, counters: Counters) -> io::Result<Self> {
        create_dir_all(folder)?;
        let path = folder.join(format!("{:05}.bsp.tsv", writer.me));
        if path.metadata().is_ok_and(|it| !it.is_file()) {
            // A pipe would wait for a reader.
            let why = format!("{}: it is no regular file", path.display());
            return Err(io::Error::other(why));
        }
        let mut file = BufWriter::new(File::create(&path)?);
        let Writer {
            me,
            size,
            link,
            measured,
        } = writer;
        let wall = SystemTime::now().duration_since(UNIX_EPOCH);
        let Measured {
            l_us,
            g_word_us,
            g_mb_s,
            ..
        } = measured;
        writeln!(
            file,
            "# process {me}\tprocesses {size}\tlink {link}\tbegan_us {}\tl_us {l_us}\tg_word_us \
             {g_word_us}\tg_mb_s {g_mb_s}",
            wall.unwrap_or_default().as_micros(),
        )?;
        writeln!(file, "{COLUMNS}")?;
        let began = Instant::now();
        Ok(Self {
            path,
            file,
            began,
            returned: began,
            called: began,
            waited: Duration::ZERO,
            before: counters,
        })
    }

    /// Records that a sync is called.
    pub fn call(&mut self) {
        self.called = Instant::now();
        self.waited = Duration::ZERO;
    }

    /// Adds the time since `since` to the wait for heads of others.
    pub fn waited(&mut self, since: Instant) {
        self.waited += since.elapsed();
    }

    /// Writes the row of a superstep.
    pub fn end(&mut self, step: u64, volume: Volume, counters: Counters) -> io::Result<()> {
        let now = Instant::now();
        let in_sync = now.duration_since(self.called);
        let (new, old) = (&counters.protocol, &self.before.protocol);
        writeln!(
            self.file,
            "{step}\t{:.3}\t{:.3}\t{:.3}\t{:.3}\t{}\t{}\t{}\t{}\t{}\t{}",
            us(self.returned.duration_since(self.began)),
            us(self.called.duration_since(self.returned)),
            us(in_sync.saturating_sub(self.waited)),
            us(self.waited),
            volume.sent,
            volume.received,
            new.packets_sent - old.packets_sent,
            new.acks_sent - old.acks_sent,
            new.resent - old.resent,
            new.duplicates - old.duplicates,
        )?;
        self.before = counters;
        // The time of writing counts for no superstep.
        self.returned = Instant::now();
        Ok(())
    }

    /// Writes all rows to the file; an error if the file was removed meanwhile.
    pub fn close(&mut self) -> io::Result<()> {
        self.flush()?;
        if self.file.get_ref().metadata()?.nlink() == 0 {
            return Err(io::Error::other("it was removed meanwhile"));
        }
        Ok(())
    }

    /// Writes all rows to the file.
    pub fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}
