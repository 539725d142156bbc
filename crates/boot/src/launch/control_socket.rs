//! The job's socket for requests of its user's other processes: see
//! [`control`](crate::control). Whatever they send or leave undone costs
//! bounded memory and no waiting.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};

use portolan_sys::closing::{Closer, refuse_descriptors};
use portolan_sys::process::{is_our_user, peer};
use rustix::event::epoll;

use super::agent_protocol::{Frames, Outgoing};
use crate::Versions;
use crate::control::{ANSWER_BYTES_MAX, Answer, Asked, JobName, Request};
use crate::frame::json;
use crate::ready::ready_now;

/// Most connections at once; further ones are closed.
const CLIENTS_MAX: usize = 16;
/// Longest question, bytes.
const QUESTION_BYTES_MAX: usize = 4096;

const LISTENER: u64 = 0;

struct Client {
    stream: UnixStream,
    frames: Frames,
    waiting: Outgoing,
    /// Whether it has asked: a second request is an error.
    asked: bool,
    /// Whether the last answer is queued.
    ended: bool,
}

/// Listens for requests. Each client has a number that is not used again.
pub(super) struct ControlSocket {
    /// None only while this is dropped.
    listener: Option<UnixListener>,
    epoll: OwnedFd,
    clients: BTreeMap<u64, Client>,
    next: u64,
    /// Closes other users' connections, which may hold descriptors.
    closer: Closer,
}

impl ControlSocket {
    /// Opens the socket of a job. None where there is one already (an agent of
    /// the job runs beside another, or beside the launcher), or the kernel
    /// refuses one: the job runs without.
    pub fn open(job_id: u64) -> Option<Self> {
        let address = JobName::own(job_id).address().ok()?;
        let listener = UnixListener::bind_addr(&address).ok()?;
        listener.set_nonblocking(true).ok()?;
        // Fails before Linux 6.16.
        let _ = refuse_descriptors(listener.as_fd());
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).ok()?;
        let data = epoll::EventData::new_u64(LISTENER);
        epoll::add(&epoll, &listener, data, epoll::EventFlags::IN).ok()?;
        Some(Self {
            listener: Some(listener),
            epoll,
            clients: BTreeMap::new(),
            next: LISTENER + 1,
            closer: Closer::default(),
        })
    }

    /// Readable when [`ControlSocket::pump`] has something to do.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Returns the requests that have come, with the numbers of their clients.
    ///
    /// # Errors
    /// A system call failed; nothing to retry.
    pub fn pump(&mut self) -> io::Result<Vec<(u64, Request)>> {
        let mut asked = Vec::new();
        for (word, _) in ready_now(&self.epoll)? {
            if word == LISTENER {
                self.accept();
                continue;
            }
            match self.listen(word) {
                Ok(Some(request)) => asked.push((word, request)),
                Ok(None) => {}
                Err(Some(why)) => self.answer(word, &Answer::Refused(why)),
                Err(None) => drop(self.clients.remove(&word)),
            }
        }
        Ok(asked)
    }

    fn accept(&mut self) {
        for _ in 0..CLIENTS_MAX {
            // Level-triggered: the next one is reported again.
            let Some(Ok((stream, _))) = self.listener.as_ref().map(UnixListener::accept) else {
                break;
            };
            let known = |uid| uid == 0 || is_our_user(uid);
            let known = peer(stream.as_fd()).is_ok_and(|who| known(who.uid));
            if !known {
                self.closer.take(stream);
                continue;
            }
            if self.clients.len() >= CLIENTS_MAX {
                continue;
            }
            let data = epoll::EventData::new_u64(self.next);
            if stream.set_nonblocking(true).is_err()
                || epoll::add(&self.epoll, &stream, data, epoll::EventFlags::IN).is_err()
            {
                continue;
            }
            let client = Client {
                stream,
                frames: Frames::default(),
                waiting: Outgoing::default(),
                asked: false,
                ended: false,
            };
            self.clients.insert(self.next, client);
            self.next += 1;
        }
        self.closer.close();
    }

    /// Returns a client's request, if all of it has come. An error ends the
    /// connection, after its text is sent, if there is one.
    fn listen(&mut self, number: u64) -> Result<Option<Request>, Option<String>> {
        let Some(client) = self.clients.get_mut(&number) else {
            return Ok(None);
        };
        let mut bytes = [0; QUESTION_BYTES_MAX];
        match client.stream.read(&mut bytes) {
            Ok(0) => return Err(None),
            Ok(n) if !client.asked => client.frames.feed(&bytes[..n]),
            // More than one request.
            Ok(_) => return Err(None),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return Err(None),
        }
        self.flush(number);
        let Some(client) = self.clients.get_mut(&number) else {
            return Ok(None);
        };
        if client.asked {
            return Ok(None);
        }
        let long = client.frames.rest().len() > QUESTION_BYTES_MAX;
        let unknown = || Some("the job does not understand the question".to_owned());
        let content = match client.frames.next() {
            Ok(None) if !long => return Ok(None),
            Ok(Some(content)) if !long => content,
            _ => return Err(unknown()),
        };
        let body = content.get(1..).unwrap_or_default();
        let asked: Asked = serde_json::from_slice(body).map_err(|_| unknown())?;
        client.asked = true;
        if asked.versions != Versions::ours() {
            return Err(Some(format!(
                "mixed versions: the job runs under {}, this command is {}; use the `portolan` \
                 that started it",
                Versions::ours(),
                asked.versions
            )));
        }
        let request = serde_json::from_value(asked.request).map_err(|_| unknown())?;
        Ok(Some(request))
    }

    /// Answers a client, if it is still there. Its last answer ends the connection.
    pub fn answer(&mut self, number: u64, answer: &Answer) {
        let Some(client) = self.clients.get_mut(&number) else {
            return;
        };
        client.waiting.push(&json(answer));
        client.ended |= matches!(answer, Answer::End | Answer::Refused(_));
        self.flush(number);
    }

    fn flush(&mut self, number: u64) {
        let Some(client) = self.clients.get_mut(&number) else {
            return;
        };
        let gone = client.waiting.flush(client.stream.as_fd()).is_err();
        let behind = !client.waiting.is_empty();
        // A client that does not read. Room for the longest answers of a few hosts.
        let stalled = client.waiting.len() > ANSWER_BYTES_MAX;
        if gone || stalled || (client.ended && !behind) {
            self.clients.remove(&number);
            return;
        }
        let mut flags = epoll::EventFlags::IN;
        flags.set(epoll::EventFlags::OUT, behind);
        let data = epoll::EventData::new_u64(number);
        // Added when the client connected; closing removes it.
        let _ = epoll::modify(&self.epoll, &client.stream, data, flags);
    }
}

/// Connections of strangers may wait to be accepted.
impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.listener
            .take()
            .into_iter()
            .for_each(|it| self.closer.take(it));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{ControlError, Look, ask};
    use std::io::Write;
    use std::thread::JoinHandle;
    use std::time::{Duration, Instant};

    const REQUEST: Request = Request::Look(Look::Places);

    fn asking(job: &JobName) -> JoinHandle<Result<Vec<Answer>, ControlError>> {
        let job = job.clone();
        std::thread::spawn(move || ask(&job, &REQUEST, Duration::from_secs(20)))
    }

    /// Pumps until a request has come.
    fn asked(socket: &mut ControlSocket) -> (u64, Request) {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(first) = socket.pump().unwrap().pop() {
                return first;
            }
            assert!(Instant::now() < deadline, "nobody asked");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_question_is_answered_and_a_second_door_is_none() {
        let job = JobName::own(0xd00f);
        let mut socket = ControlSocket::open(job.id).unwrap();
        assert!(ControlSocket::open(job.id).is_none());
        let client = asking(&job);
        let (who, request) = asked(&mut socket);
        assert_eq!(request, REQUEST);
        let silent = Answer::Silent {
            host_index: 3,
            name: "x".repeat(3 << 20),
        };
        socket.answer(who, &silent);
        socket.answer(who, &Answer::End);
        while !socket.clients.is_empty() {
            socket.pump().unwrap();
        }
        assert_eq!(client.join().unwrap().unwrap(), [silent]);
    }

    #[test]
    fn those_who_make_no_sense_are_sent_away_and_others_served() {
        let job = JobName::own(0xd00e);
        let mut socket = ControlSocket::open(job.id).unwrap();
        let mut strangers = Vec::new();
        let foreign = Asked {
            versions: Versions {
                portolan: "9.9".to_owned(),
                ..Versions::ours()
            },
            request: serde_json::Value::Null,
        };
        for bytes in [
            &b"\x02\0\0\0?!"[..],
            &[0; 64],
            &[0xff; 5000],
            &json(&foreign),
        ] {
            let mut stream = UnixStream::connect_addr(&job.address().unwrap()).unwrap();
            stream.write_all(bytes).unwrap();
            strangers.push(stream);
        }
        // A client that sends nothing stays, and disturbs no other.
        strangers.push(UnixStream::connect_addr(&job.address().unwrap()).unwrap());
        let client = asking(&job);
        let (who, _) = asked(&mut socket);
        socket.answer(who, &Answer::Refused("no".to_owned()));
        assert!(matches!(client.join().unwrap(), Err(ControlError::Refused(why)) if why == "no"));
        assert_eq!(socket.clients.len(), 1);
        let mut bytes = Vec::new();
        let _ = strangers[3].read_to_end(&mut bytes);
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.contains("mixed versions"), "{text}");
    }

    #[test]
    fn no_more_than_so_many_are_let_in() {
        let job = JobName::own(0xd00d);
        let mut socket = ControlSocket::open(job.id).unwrap();
        let address = job.address().unwrap();
        let connect = |_| UnixStream::connect_addr(&address).unwrap();
        let _streams: Vec<UnixStream> = (0..CLIENTS_MAX + 4).map(connect).collect();
        socket.pump().unwrap();
        assert_eq!(socket.clients.len(), CLIENTS_MAX);
    }
}
