//! Rules of a network card that bring packets to the queue of a host port, where
//! the card takes such rules. Elsewhere the way there is found by trying.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use portolan_boot::node::{NODE_FOLDER, own_network};
use portolan_sys::ethtool::FlowRules;
use portolan_sys::net::Interface;
use rustix::process::geteuid;

use crate::file::FOLDER;

/// What holds rules.
pub trait Card {
    /// Brings what comes for a UDP port, over IPv6 or IPv4, to a queue; gives
    /// the rule's place.
    fn add(&self, v6: bool, udp: u16, queue: u32) -> io::Result<u32>;
    /// Removes the rule at a place, if it is of that UDP port.
    fn remove(&self, place: u32, udp: u16) -> io::Result<()>;
}

impl Card for FlowRules {
    fn add(&self, v6: bool, udp: u16, queue: u32) -> io::Result<u32> {
        Self::add(self, v6, udp, queue)
    }

    fn remove(&self, place: u32, udp: u16) -> io::Result<()> {
        Self::remove(self, place, udp)
    }
}

/// The rules of one interface for its host ports.
pub struct Rules<C = FlowRules> {
    card: C,
    file: PathBuf,
    /// UDP port and place of each.
    known: Vec<(u16, u32)>,
}

impl Rules {
    /// Those of an interface of the calling thread's network; none where its
    /// card takes none. Of those that were left only the ones of `steered` UDP
    /// ports stay.
    pub fn of(interface: &Interface, steered: &[u16]) -> Option<Self> {
        // Whatever fails is found by trying.
        let card = FlowRules::of(&interface.name).ok()??;
        // There it stands which rules are ours, so that those of one that was killed
        // are removed: the card keeps them. Root writes where nobody else does.
        let folder = if geteuid().is_root() {
            FOLDER
        } else {
            NODE_FOLDER
        };
        Some(Self::with(card, &file(folder, interface), steered))
    }

    /// Removes all that were left, those of a service that ran as another user
    /// as well.
    pub fn clear(interface: &Interface) {
        drop(Self::of(interface, &[]));
        let (card, file) = (FlowRules::of(&interface.name), file(NODE_FOLDER, interface));
        if let Ok(Some(card)) = card {
            // Nothing is written where that user may.
            for (udp, place) in read(&file) {
                let _ = card.remove(place, udp);
            }
            let _ = fs::remove_file(file);
        }
    }
}

fn file(folder: &str, interface: &Interface) -> PathBuf {
    let name = format!("rules-{}-{}", own_network(), interface.index);
    Path::new(folder).join(name)
}

fn read(file: &Path) -> Vec<(u16, u32)> {
    crate::file::read_record(file)
}

impl<C: Card> Rules<C> {
    fn with(card: C, file: &Path, steered: &[u16]) -> Self {
        let mut rules = Self {
            card,
            file: file.to_owned(),
            known: read(file),
        };
        let left: Vec<u16> = rules.known.iter().map(|(udp, _)| *udp).collect();
        for udp in left.into_iter().filter(|udp| !steered.contains(udp)) {
            rules.remove(udp);
        }
        rules
    }

    /// Brings what comes for a UDP port to `queue`, as far as the card can.
    pub fn add(&mut self, udp: u16, queue: u32) {
        for v6 in [false, true] {
            let place = self.card.add(v6, udp, queue);
            self.known.extend(place.ok().map(|place| (udp, place)));
        }
        self.write();
    }

    /// Removes the rules of a UDP port.
    pub fn remove(&mut self, udp: u16) {
        let card = &self.card;
        self.known.retain(|(of, place)| {
            let ours = *of == udp;
            // One that cannot be removed is tried again by whoever is next.
            !ours || card.remove(*place, udp).is_err()
        });
        self.write();
    }

    fn write(&self) {
        // Rules that could not be written down stay if this process is killed.
        let _ = if self.known.is_empty() {
            fs::remove_file(&self.file)
        } else {
            let text = serde_json::to_vec(&self.known).expect("plain data in memory");
            let folder = self.file.parent().map_or(Ok(()), fs::create_dir_all);
            folder.and_then(|()| fs::write(&self.file, text))
        };
    }
}

/// How packets come to the queue that is used of interface `name`, of the
/// calling thread's network; none where it has one alone.
pub fn way_to_queue(name: &str) -> Option<String> {
    let entries = fs::read_dir(format!("/sys/class/net/{name}/queues")).ok()?;
    let receives = |name: &std::ffi::OsString| name.to_string_lossy().starts_with("rx-");
    let names = entries.flatten().map(|entry| entry.file_name());
    let queues = names.filter(receives).count();
    let how = match FlowRules::of(name) {
        _ if queues < 2 => return None,
        Ok(Some(_)) => "packets are brought there by rules of the card (ethtool -N)",
        Ok(None) => "the card takes no rules (ethtool -N): source ports are tried",
        Err(_) => "nobody else may set rules of the card: source ports are tried",
    };
    Some(format!("of {queues} receive queues queue 0 is used; {how}"))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    use super::*;

    /// A card with four places.
    #[derive(Default)]
    struct Small(RefCell<BTreeMap<u32, (bool, u16, u32)>>);

    impl Card for &Small {
        fn add(&self, v6: bool, udp: u16, queue: u32) -> io::Result<u32> {
            let mut rules = self.0.borrow_mut();
            let place = (1..4).find(|place| !rules.contains_key(place));
            let place = place.ok_or(io::ErrorKind::StorageFull)?;
            rules.insert(place, (v6, udp, queue));
            Ok(place)
        }

        fn remove(&self, place: u32, udp: u16) -> io::Result<()> {
            let mut rules = self.0.borrow_mut();
            if rules.get(&place).is_some_and(|rule| rule.1 == udp) {
                rules.remove(&place);
            }
            Ok(())
        }
    }

    #[test]
    fn rules_go_with_their_host_ports_also_those_of_one_that_was_killed() {
        let card = Small::default();
        card.0.borrow_mut().insert(0, (false, 99, 3));
        let others = card.0.borrow().clone();
        let folder = std::env::temp_dir().join(format!("portolan-rules-{}", std::process::id()));
        let file = folder.join("rules");
        let mut rules = Rules::with(&card, &file, &[]);
        rules.add(10, 0);
        // There is one place left.
        rules.add(20, 0);
        let all = card.0.borrow().clone();
        let of = |udp| all.values().filter(|rule| rule.1 == udp).count();
        assert_eq!((of(10), of(20), of(99)), (2, 1, 1));
        // It is killed, and port 20 is steered still.
        let mut rules = Rules::with(&card, &file, &[20]);
        assert_eq!(rules.known, [(20, 3)]);
        assert!(!card.0.borrow().values().any(|rule| rule.1 == 10));
        rules.add(30, 0);
        rules.remove(20);
        rules.remove(40);
        assert_eq!(card.0.borrow().len(), 3);
        // Somebody else has taken the place of one of them since.
        card.0.borrow_mut().insert(1, (false, 98, 3));
        drop(Rules::with(&card, &file, &[]));
        let left = card.0.borrow().clone();
        assert_eq!(
            left.into_iter().collect::<Vec<_>>(),
            [(0, others[&0]), (1, (false, 98, 3))]
        );
        assert!(!file.exists());
        fs::remove_dir(folder).unwrap();
    }
}
