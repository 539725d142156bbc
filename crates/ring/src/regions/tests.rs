//! What one process sees of it; `tests/loom.rs` has the races.

use super::*;

struct Host {
    lines: Vec<CacheLine>,
    layout: RegionsLayout,
}

impl Host {
    fn new(regions: u32) -> Self {
        let layout = RegionsLayout { regions };
        let lines = std::iter::repeat_with(CacheLine::default).take(layout.lines());
        let lines = lines.collect();
        Self { lines, layout }
    }

    fn table(&self) -> RegionTable<'_> {
        RegionTable::new(&self.lines, self.layout)
    }

    fn owner(&self) -> RegionOwner<'_> {
        RegionOwner::new(self.table())
    }
}

fn region(key: u64) -> Region {
    Region {
        key: key.into(),
        start: key ^ 0x5555,
        length: 10,
        rights: Permission::Get,
        demands_salt: false,
    }
}

fn found(table: &RegionTable<'_>, key: u64) -> Option<Region> {
    let word = AtomicU64::new(0);
    let found = UseWord::new(&word).hold(3, table, key).map(|h| h.region());
    assert_eq!(word.into_inner(), 0);
    found
}

fn withdraw(owner: &mut RegionOwner<'_>, id: RegionId) -> Result<(), WithdrawError> {
    owner.try_withdraw(id, std::iter::empty(), |_| panic!("nobody copies"))
}

#[test]
fn what_is_published_is_found_until_it_is_withdrawn() {
    let host = Host::new(8);
    let mut owner = host.owner();
    for rights in [
        Permission::None,
        Permission::Get,
        Permission::Put,
        Permission::Both,
    ] {
        let region = Region {
            rights,
            ..region(7)
        };
        let id = owner.publish(region).unwrap();
        assert_eq!(found(&host.table(), 7), Some(region));
        assert_eq!(found(&host.table(), 8), None);
        assert_eq!(withdraw(&mut owner, id), Ok(()));
        assert_eq!(found(&host.table(), 7), None);
        assert_eq!(withdraw(&mut owner, id), Err(WithdrawError::NoRegion));
        // The slot is another's now, the old name is still refused.
        let other = owner.publish(region).unwrap();
        assert_eq!(withdraw(&mut owner, id), Err(WithdrawError::NoRegion));
        assert_eq!(withdraw(&mut owner, other), Ok(()));
    }
    let whole = Region {
        key: 0.into(),
        start: 0,
        length: u64::MAX,
        rights: Permission::Both,
        demands_salt: false,
    };
    owner.publish(whole).unwrap();
    assert_eq!(found(&host.table(), 0), Some(whole));
    owner.publish(region(u64::MAX)).unwrap();
    owner.invalidate_all();
    assert_eq!(found(&host.table(), 0), None);
    assert_eq!(found(&host.table(), u64::MAX), None);
}

#[test]
fn a_salt_tells_regions_of_one_key_apart() {
    let host = Host::new(8);
    let mut owner = host.owner();
    let salted = |salt| RegionKey { key: 7, salt };
    let with = |salt| Region {
        key: salted(salt),
        ..region(7)
    };
    let word = AtomicU64::new(0);
    let mut user = UseWord::new(&word);
    let table = host.table();
    let id = owner.publish(with(1)).unwrap();
    assert_eq!(owner.publish(with(2)), Err(PublishError::KeyTaken));
    for (salt, expected) in [(0, true), (1, true), (2, false)] {
        let held = user.hold(3, &table, salted(salt)).map(|it| it.region());
        assert_eq!(held, expected.then_some(with(1)));
    }
    withdraw(&mut owner, id).unwrap();
    owner.publish(with(2)).unwrap();
    for (salt, expected) in [(0, true), (1, false), (2, true)] {
        let held = user.hold(3, &table, salted(salt)).map(|it| it.region());
        assert_eq!(held, expected.then_some(with(2)));
    }
}

#[test]
fn a_region_that_demands_its_salt_is_found_by_nothing_less() {
    let host = Host::new(8);
    let mut owner = host.owner();
    let table = host.table();
    let word = AtomicU64::new(0);
    let mut user = UseWord::new(&word);
    let mut found = |salt| user.hold(3, &table, RegionKey { key: 7, salt }).is_some();
    for rights in [Permission::None, Permission::Both] {
        // The slot's next region is as it says itself.
        for demands_salt in [true, false] {
            let key = RegionKey { key: 7, salt: 5 };
            let region = Region {
                key,
                rights,
                demands_salt,
                ..region(7)
            };
            let id = owner.publish(region).unwrap();
            assert_eq!([0, 5, 6].map(&mut found), [!demands_salt, true, false]);
            withdraw(&mut owner, id).unwrap();
            assert_eq!([0, 5, 6].map(&mut found), [false; 3]);
        }
    }
}

#[test]
fn what_cannot_be_published_is_refused() {
    let host = Host::new(2);
    let mut owner = host.owner();
    let id = owner.publish(region(1)).unwrap();
    assert_eq!(owner.publish(region(1)), Err(PublishError::KeyTaken));
    let beyond = Region {
        start: u64::MAX - 8,
        ..region(2)
    };
    assert_eq!(owner.publish(beyond), Err(PublishError::Range));
    owner.publish(region(2)).unwrap();
    assert_eq!(owner.publish(region(3)), Err(PublishError::Full(2)));
    assert_eq!(withdraw(&mut owner, id), Ok(()));
    owner.set_terms(Terms::Forbidden);
    assert_eq!(owner.publish(region(3)), Err(PublishError::Forbidden));
    assert_eq!(host.table().terms(), Terms::Forbidden);
    owner.set_terms(Terms::Elsewhere);
    assert_eq!(host.table().terms(), Terms::Elsewhere);
    owner.publish(region(3)).unwrap();
    let none = Host::new(0);
    assert_eq!(none.owner().publish(region(1)), Err(PublishError::Full(0)));
    assert_eq!(found(&none.table(), 1), None);
}

/// The keys that users choose: as many as there is room for, all found,
/// over and over.
#[test]
fn a_table_takes_all_that_it_is_for() {
    let mut random = 1u64;
    for regions in [1, 3, 4, 5, 100, 1_024] {
        let host = Host::new(regions);
        let mut owner = host.owner();
        for family in 0..6 {
            let keys: Vec<u64> = (0..u64::from(regions))
                .map(|i| match family {
                    0 => i,
                    1 => i << 12,
                    2 => 0x7fff_0000_0000 + i * 64,
                    3 => i << 48,
                    4 => u64::MAX - i * 7,
                    _ => {
                        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d) + 1;
                        random.rotate_left(32)
                    }
                })
                .collect();
            let ids: Vec<_> = keys
                .iter()
                .map(|key| owner.publish(region(*key)).unwrap())
                .collect();
            assert_eq!(
                owner.publish(region(1 << 62 | 1)),
                Err(PublishError::Full(regions))
            );
            for key in &keys {
                assert_eq!(found(&host.table(), *key), Some(region(*key)));
            }
            for id in ids {
                withdraw(&mut owner, id).unwrap();
            }
        }
    }
}

#[test]
fn a_withdrawal_waits_for_who_copies_and_not_for_the_dead() {
    let host = Host::new(8);
    let mut owner = host.owner();
    let words: [AtomicU64; 3] = Default::default();
    let users = || (0..).zip(&words).map(|(user, word)| (user, 3, word));
    let table = host.table();
    let id = owner.publish(region(1)).unwrap();
    let other = owner.publish(region(2)).unwrap();
    let mut first = UseWord::new(&words[0]);
    let held = first.hold(3, &table, 1).unwrap();
    // Of another region, and of another owner's in the same slot.
    let mut second = UseWord::new(&words[1]);
    let elsewhere = second.hold(3, &table, 2).unwrap();
    words[2].store(use_of(4, id.slot as usize), Ordering::Relaxed);

    let alive = |_| false;
    let busy = Err(WithdrawError::InUse(0));
    assert_eq!(owner.try_withdraw(id, users(), alive), busy);
    assert_eq!(found(&table, 1), None);
    // The key is free at once, and another slot is taken for it.
    let again = owner.publish(region(1)).unwrap();
    assert_ne!(again.slot, id.slot);
    assert_eq!(owner.try_withdraw(id, users(), alive), busy);
    assert_eq!(owner.try_withdraw(again, users(), alive), Ok(()));
    drop(held);
    assert_eq!(owner.try_withdraw(id, users(), alive), Ok(()));

    // One that was killed says for ever that it copies.
    let dead = |user| user == 1;
    std::mem::forget(elsewhere);
    assert_eq!(
        owner.try_withdraw(other, users(), alive),
        Err(WithdrawError::InUse(1))
    );
    assert_eq!(owner.try_withdraw(other, users(), dead), Ok(()));
}

#[test]
fn a_region_that_still_leaves_takes_room() {
    let host = Host::new(1);
    let mut owner = host.owner();
    let word = AtomicU64::new(0);
    let mut user = UseWord::new(&word);
    let id = owner.publish(region(1)).unwrap();
    let table = host.table();
    let held = user.hold(3, &table, 1).unwrap();
    let users = || std::iter::once((0, 3, &word));
    assert!(owner.try_withdraw(id, users(), |_| false).is_err());
    assert_eq!(owner.publish(region(1)), Err(PublishError::Full(1)));
    drop(held);
    assert_eq!(owner.try_withdraw(id, users(), |_| false), Ok(()));
    owner.publish(region(1)).unwrap();
}

/// Whatever is scribbled over the table, looks end, and the owner goes by
/// what it knows.
#[test]
fn garbage_misleads_no_owner() {
    let host = Host::new(16);
    let mut owner = host.owner();
    let table = host.table();
    let mut random = 7u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    for _ in 0..200 {
        let ids: Vec<_> = (0..16)
            .map(|key| owner.publish(region(key)).unwrap())
            .collect();
        for _ in 0..40 {
            let line = &host.lines[next() as usize % host.lines.len()];
            let value = if next() % 2 == 0 { next() } else { next() % 16 };
            line.word(next() as usize % 8)
                .store(value, Ordering::Relaxed);
        }
        for key in 0..16 {
            let word = AtomicU64::new(next());
            let _ = UseWord::new(&word).hold(3, &table, key);
            let _ = table.terms();
        }
        let garbage = AtomicU64::new(next() & !IN_USE);
        for id in ids {
            let users = std::iter::once((0, 3, &garbage));
            assert_eq!(owner.try_withdraw(id, users, |_| false), Ok(()));
        }
    }
}
