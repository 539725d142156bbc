//! The matcher beside two plain lists that are searched from the front.
//!
//! After each call both said the same, hold as many, in all and of each source,
//! and now and then list the same. Tickets of entries that are gone name
//! nothing, whatever holds their slots now.

use portolan_matching::{
    Arrival, Envelope, Match, Matcher, MessageTicket, Post, ReceiveTicket, Selector,
};

use crate::input::Input;

/// Steps of one run, at most.
const STEPS: usize = 2_000;
/// What is held is listed after so many steps: it takes longer than they do.
const LIST_EVERY: usize = 16;
/// Messages come from these.
const SOURCES: u32 = 4;
/// Tags that differ in both halves, in one bit and in all.
const TAGS: [u64; 8] = [0, 1, 2, 3, 1 << 63, 1 << 63 | 1, !0, !1];
/// With one source and with any, twice as many shapes as messages have indexes
/// of.
const MASKS: [u64; 10] = [0, 1, 2, 3, 1 << 63, 1 << 63 | 1, !0, !1, !0 >> 1, 0xff];

/// One call of the matcher.
#[derive(Clone, Copy, Debug)]
pub enum MatchStep {
    /// A receive is posted.
    Post(Selector),
    /// A message arrives.
    Arrive(Envelope),
    /// The receive that got the so many latest ticket is cancelled.
    Cancel(usize),
    /// A probe.
    Peek(Selector),
    /// A matched probe.
    Claim(Selector),
    /// Of the message that got the so many latest ticket.
    ClaimTicket(usize),
    /// Which receive would take a message.
    PeekPosted(Envelope),
    /// A source dies.
    Forget(u32),
}

/// Reads a fuzzer's bytes as steps and takes them.
pub fn matching(bytes: &[u8]) {
    let mut input = Input(bytes);
    let secret = [input.byte().into(), 7];
    let mut steps = Vec::new();
    while !input.is_empty() && steps.len() < STEPS {
        read(&mut input, &mut steps);
    }
    matching_steps(secret, &steps);
}

/// Adds the next step, or several of one kind.
fn read(input: &mut Input, steps: &mut Vec<MatchStep>) {
    match input.byte() % 16 {
        0..=4 => steps.push(MatchStep::Post(selector(input))),
        5..=8 => steps.push(MatchStep::Arrive(envelope(input))),
        9 => {
            // So many that tables grow and indexes go out of use.
            let first = envelope(input);
            let arrive = |k: u8| {
                let tag = first.tag.wrapping_add(k.into());
                MatchStep::Arrive(Envelope { tag, ..first })
            };
            steps.extend((0..input.byte()).map(arrive));
        }
        10 | 11 => steps.push(MatchStep::Cancel(input.byte().into())),
        12 => steps.push(MatchStep::Peek(selector(input))),
        13 => steps.push(MatchStep::Claim(selector(input))),
        14 => steps.push(MatchStep::ClaimTicket(input.byte().into())),
        _ => match input.byte() {
            rare @ 0..16 => steps.push(MatchStep::Forget(u32::from(rare) % (SOURCES + 1))),
            _ => steps.push(MatchStep::PeekPosted(envelope(input))),
        },
    }
}

fn tag(input: &mut Input) -> u64 {
    TAGS[usize::from(input.byte()) % TAGS.len()]
}

fn envelope(input: &mut Input) -> Envelope {
    Envelope {
        source: u32::from(input.byte()) % SOURCES,
        tag: tag(input),
    }
}

fn selector(input: &mut Input) -> Selector {
    let source = u32::from(input.byte()) % (2 * SOURCES);
    Selector {
        source: (source < SOURCES).then_some(source),
        tag: tag(input),
        // Half of them exact, as programs have it.
        ignore: MASKS[(usize::from(input.byte()) % (2 * MASKS.len())).saturating_sub(MASKS.len())],
    }
}

/// The rule, in other words than the matcher's.
fn fits(selector: &Selector, envelope: &Envelope) -> bool {
    let source = selector.source.unwrap_or(envelope.source);
    let ignore = selector.ignore;
    source == envelope.source && selector.tag | ignore == envelope.tag | ignore
}

/// Takes steps.
pub fn matching_steps(secret: [u64; 2], steps: &[MatchStep]) {
    let mut run = Run {
        matcher: Matcher::new(secret),
        receives: Vec::new(),
        messages: Vec::new(),
        receive_tickets: Vec::new(),
        message_tickets: Vec::new(),
        handles: 0,
    };
    for (at, step) in steps.iter().enumerate() {
        if let Err(what) = run.step(step) {
            panic!("{what} at step {at} of {steps:?}");
        }
        run.count();
        if at % LIST_EVERY == 0 {
            run.list();
        }
    }
    run.list();
}

/// A ticket, a handle, and what it is matched on.
type Listed<T, E> = (T, u32, E);

struct Run {
    matcher: Matcher<u32, u32>,
    /// What waits, oldest first.
    receives: Vec<Listed<ReceiveTicket, Selector>>,
    messages: Vec<Listed<MessageTicket, Envelope>>,
    /// All that there have been.
    receive_tickets: Vec<ReceiveTicket>,
    message_tickets: Vec<MessageTicket>,
    handles: u32,
}

/// What both said, if it is not the same.
fn same<T: PartialEq + std::fmt::Debug>(said: &T, expected: &T) -> Result<(), String> {
    if said == expected {
        Ok(())
    } else {
        Err(format!("said {said:?} and not {expected:?}"))
    }
}

impl Run {
    fn handle(&mut self) -> u32 {
        self.handles += 1;
        self.handles
    }

    /// Where the message is that a selector is for.
    fn message(&self, selector: &Selector) -> Option<usize> {
        self.messages.iter().position(|(.., on)| fits(selector, on))
    }

    /// Where the receive is that takes a message.
    fn receive(&self, envelope: &Envelope) -> Option<usize> {
        self.receives.iter().position(|(.., on)| fits(on, envelope))
    }

    fn step(&mut self, step: &MatchStep) -> Result<(), String> {
        match step {
            MatchStep::Post(selector) => self.post(selector),
            MatchStep::Arrive(envelope) => self.arrive(envelope),
            MatchStep::Cancel(back) => {
                let Some(&ticket) = self.receive_tickets.iter().rev().nth(*back) else {
                    return Ok(());
                };
                let at = self.receives.iter().position(|it| it.0 == ticket);
                let expected = at.map(|at| self.receives.remove(at).1);
                same(&self.matcher.cancel(ticket), &expected)
            }
            MatchStep::Peek(selector) => {
                let at = self.message(selector);
                let expected = at.map(|at| &self.messages[at]);
                let expected = expected.map(|(ticket, handle, on)| (*ticket, *on, handle));
                same(&self.matcher.peek(selector), &expected)
            }
            MatchStep::Claim(selector) => {
                let at = self.message(selector);
                let expected = at.map(|at| self.messages.remove(at));
                let expected = expected.map(|(_, handle, on)| (on, handle));
                same(&self.matcher.claim(selector), &expected)
            }
            MatchStep::ClaimTicket(back) => {
                let Some(&ticket) = self.message_tickets.iter().rev().nth(*back) else {
                    return Ok(());
                };
                let at = self.messages.iter().position(|it| it.0 == ticket);
                let expected = at.map(|at| self.messages.remove(at));
                let expected = expected.map(|(_, handle, on)| (on, handle));
                same(&self.matcher.claim_ticket(ticket), &expected)
            }
            MatchStep::PeekPosted(envelope) => {
                let expected = self.receive(envelope).map(|at| &self.receives[at]);
                let expected = expected.map(|(ticket, handle, _)| (*ticket, handle));
                same(&self.matcher.peek_posted(envelope), &expected)
            }
            MatchStep::Forget(source) => {
                let forgotten = self.matcher.forget(*source);
                let of_it = |it: &mut Listed<ReceiveTicket, Selector>| it.2.source == Some(*source);
                let receives = self.receives.extract_if(.., of_it).map(|it| it.1);
                same(&forgotten.receives, &receives.collect())?;
                let of_it = |it: &mut Listed<MessageTicket, Envelope>| it.2.source == *source;
                let messages = self.messages.extract_if(.., of_it).map(|it| it.1);
                same(&forgotten.messages, &messages.collect())
            }
        }
    }

    fn post(&mut self, selector: &Selector) -> Result<(), String> {
        let handle = self.handle();
        let said = self.matcher.post(*selector, handle);
        match (said, self.message(selector)) {
            (Post::Matched(met), Some(at)) => {
                let (_, message, envelope) = self.messages.remove(at);
                let expected = Match {
                    receive: handle,
                    message,
                    envelope,
                };
                same(&met, &expected)
            }
            (Post::Posted(ticket), None) => {
                // As it is listed.
                let tag = selector.tag & !selector.ignore;
                let on = Selector { tag, ..*selector };
                self.receives.push((ticket, handle, on));
                self.receive_tickets.push(ticket);
                Ok(())
            }
            (said, at) => Err(format!("said {said:?}, the list's is {at:?}")),
        }
    }

    fn arrive(&mut self, envelope: &Envelope) -> Result<(), String> {
        let handle = self.handle();
        let said = self.matcher.arrive(*envelope, handle);
        match (said, self.receive(envelope)) {
            (Arrival::Matched(met), Some(at)) => {
                let expected = Match {
                    receive: self.receives.remove(at).1,
                    message: handle,
                    envelope: *envelope,
                };
                same(&met, &expected)
            }
            (Arrival::Unexpected(ticket), None) => {
                self.messages.push((ticket, handle, *envelope));
                self.message_tickets.push(ticket);
                Ok(())
            }
            (said, at) => Err(format!("said {said:?}, the list's is {at:?}")),
        }
    }

    /// Both hold as many.
    fn count(&self) {
        assert_eq!(self.matcher.posted_len(), self.receives.len());
        assert_eq!(self.matcher.unexpected_len(), self.messages.len());
        for source in 0..=SOURCES {
            let of_it = self.messages.iter().filter(|it| it.2.source == source);
            assert_eq!(self.matcher.unexpected_from(source), of_it.count());
        }
    }

    /// Both list the same, and tickets have the order of age.
    fn list(&self) {
        let listed = self.matcher.posted();
        let mut listed: Vec<_> = listed
            .map(|(ticket, on, what)| (ticket, *what, on))
            .collect();
        listed.sort_by_key(|it| it.0);
        assert_eq!(listed, self.receives);
        let listed = self.matcher.unexpected();
        let mut listed: Vec<_> = listed
            .map(|(ticket, on, what)| (ticket, *what, on))
            .collect();
        listed.sort_by_key(|it| it.0);
        assert_eq!(listed, self.messages);
    }
}
