//! Brings posted receives and arrived messages together.
//!
//! A message has an [`Envelope`]: the rank that it comes from and a tag of 64
//! bits. A receive has a [`Selector`]: a rank or any, a tag, and the bits of
//! it that do not count. [`Matcher`] holds what has not met yet, receives and
//! messages as handles of the caller's (`R` and `M`), and decides who meets:
//!
//! - of several receives that fit an arriving message, the one posted first
//!   takes it;
//! - of several messages that fit a receive, it takes the one that arrived
//!   first, so messages of one source stay in order.
//!
//! It knows neither links nor memory of users, reads no clock and draws no
//! randomness; the same calls have the same results, whatever the secret of
//! its hash. It sets no budget: what is held is counted, in all and for each
//! source, and the caller decides what may come.
//!
//! ```
//! use portolan_matching::{Arrival, Envelope, Matcher, Post, Selector};
//!
//! let secret = [1, 2]; // Random in earnest.
//! let mut matcher: Matcher<&str, &str> = Matcher::new(secret);
//! let envelope = Envelope { source: 3, tag: 7 };
//! assert!(matches!(matcher.arrive(envelope, "ahoy"), Arrival::Unexpected(_)));
//! let Post::Matched(met) = matcher.post(Selector::any(7), "buffer") else {
//!     panic!("nothing waits");
//! };
//! assert_eq!((met.message, met.receive, met.envelope), ("ahoy", "buffer", envelope));
//! ```
//!
//! # What it costs
//!
//! Receives and messages of one *shape* (any source or one, and which bits of
//! the tag do not count) are hashed by what counts. An arrival asks each shape
//! of which receives are posted; a receive, a probe or a claim asks its own. So
//! a match takes the same steps however much is held and in whatever order it
//! is matched; they grow with the number of shapes in use at once, of which
//! programs have few.
//!
//! Messages are indexed for exact receives always. For another shape an index
//! is made when it is asked for while messages wait, in time in proportion to
//! the most ever held; it is given up once more than that have come without its
//! being asked again. [`SHAPES_MAX`] of them are kept, the least recently asked
//! one makes room; a program that asks for more in turns pays each time.
//!
//! Tags are chosen by peers, so the hash is keyed: who does not know the secret
//! cannot choose tags that collide. Memory is bounded by the most entries ever
//! held, and is used again without allocation.
//!
//! `envelope` is the rule of what fits, `index` finds the first of a key,
//! `entries` holds, `posted` and `unexpected` are the two sides.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod entries;
mod envelope;
mod hash;
mod index;
mod matcher;
mod posted;
mod ticket;
mod unexpected;

pub use envelope::{Envelope, Selector};
pub use matcher::{Arrival, Forgotten, Match, Matcher, Post};
pub use ticket::{MessageTicket, ReceivePlace, ReceiveTicket};
pub use unexpected::SHAPES_MAX;
