//! Endpoints of a segment, in this process and in others.

use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::Duration;

use portolan_link::shm::{Segment, SegmentConfig, ShmError, ShmPort, Slumbering};
use portolan_sys::shared_doorbell::SharedDoorbells;
use portolan_wire::Priority;
use rustix::event::{PollFd, PollFlags, poll};

/// How long something may take to come about that surely does. It only ends a
/// test that would hang: nothing is measured by it.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Endpoints of one segment, all in this process.
pub struct Host {
    pub segment: Segment,
    pub ports: Vec<ShmPort>,
}

pub fn host(endpoints: u16, config: &SegmentConfig) -> Host {
    let segment = Segment::create(endpoints.into(), config).unwrap();
    let bells = SharedDoorbells::new(endpoints.into()).unwrap();
    let ports = (0..endpoints)
        .map(|index| {
            let bells = bells.duplicate_of(index.into()).unwrap();
            let fd = segment.duplicate_fd().unwrap();
            let mut port = ShmPort::attach(fd, index, bells, true).unwrap();
            (0..endpoints).for_each(|peer| port.set_process(peer, std::process::id()));
            port
        })
        .collect();
    Host { segment, ports }
}

pub fn small() -> SegmentConfig {
    SegmentConfig {
        frame_bytes_max: 1_000,
        ring_slots: 8,
        ring_bytes: Some(4 << 10),
        inbox_slots: 32,
        inbox_frames: 2,
        ..SegmentConfig::default()
    }
}

pub fn send(port: &mut ShmPort, to: u16, priority: Priority, bytes: &[u8]) -> Result<(), ShmError> {
    let mut slot = port.reserve(to, priority, bytes.len())?;
    slot.bytes_mut().copy_from_slice(bytes);
    slot.commit();
    Ok(())
}

pub fn receive_one(port: &mut ShmPort) -> Option<(u16, Priority, Vec<u8>)> {
    let mut got = None;
    port.poll(1, |from, priority, bytes| {
        got = Some((from, priority, bytes.to_vec()));
        true
    })
    .unwrap();
    got
}

/// Waits for the doorbell; a test that waits in vain fails.
pub fn sleep(port: &mut ShmPort) {
    if port.sleep_prepare() == Slumbering::Yes {
        let limit = PATIENCE.try_into().unwrap();
        let n = poll(&mut [PollFd::new(port, PollFlags::IN)], Some(&limit)).unwrap();
        assert!(n > 0, "slept through a message");
    }
    port.sleep_cancel();
}

const CHILD: &str = "PORTOLAN_TEST_SHM_CHILD";

/// Starts this program again, to run `test` there with the descriptors that
/// endpoint `index` needs.
pub fn spawn(
    test: &str,
    index: u16,
    segment: &Segment,
    bells: &SharedDoorbells,
) -> std::process::Child {
    let mut fds: Vec<OwnedFd> = vec![segment.duplicate_fd().unwrap()];
    fds.extend(bells.duplicate_of(index.into()).unwrap());
    for fd in &fds {
        rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty()).unwrap();
    }
    let numbers: Vec<_> = fds.iter().map(|fd| fd.as_raw_fd().to_string()).collect();
    Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        // What its harness says would be taken for the program's own.
        .stdout(Stdio::null())
        .env(CHILD, format!("{index} {}", numbers.join(" ")))
        .spawn()
        .unwrap()
}

/// In a process that [`spawn`] started: its port.
pub fn child() -> Option<ShmPort> {
    let value = std::env::var(CHILD).ok()?;
    let mut numbers = value.split(' ').map(|n| n.parse::<i32>().unwrap());
    let index = numbers.next().unwrap() as u16;
    let mut fds: Vec<_> = numbers
        .map(|fd| portolan_sys::inherit::adopt_inherited(fd).unwrap())
        .collect();
    let segment = fds.remove(0);
    let mut port = ShmPort::attach(segment, index, fds, true).unwrap();
    port.set_process(0, std::os::unix::process::parent_id());
    Some(port)
}
