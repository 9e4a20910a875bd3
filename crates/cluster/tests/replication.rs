//! Records of the stream, and what a shard does about them.

use crate::common::{
    Keys, State,
    stream::{CHAIN, bare_update, bytes_of, chain_of, first_block, item, keys, signer},
};
use alloy_primitives::{B256, Bytes};
use cambium_cluster::{
    BuilderKeys, Follower, FollowerState, Hole, Ignored, MemoryStream, Missing, Publisher, Record,
    RecordError, SignedUpdate, Signer, Stream, StreamFault, StreamItem, StreamPosition, Verdict,
};
use cambium_primitives::BlockId;
use cambium_seeds::{Random, seeds};
use std::{collections::HashSet, time::Duration};

fn epoch(signer: &Signer, number: u64) -> Bytes {
    Record::from(signer.open_epoch(number)).encode().into()
}

fn choice(signer: &Signer, epoch: u64, number: u64, block: BlockId) -> Bytes {
    let choice = signer.choose(epoch, number, block, block, block);
    Record::from(choice).encode().into()
}

/// A follower, and the blocks of its shard.
struct World {
    follower: Follower,
    known: HashSet<B256>,
    next: u64,
}

impl World {
    fn new() -> Self {
        Self {
            follower: Follower::new(keys(), FollowerState::default()),
            known: HashSet::from([first_block().hash]),
            next: 1,
        }
    }

    fn judge(&mut self, item: &StreamItem) -> Verdict {
        let known = self.known.clone();
        let verdict = self.follower.step(item, |id| known.contains(&id.hash));
        if let Verdict::Apply(update) = &verdict {
            self.known.insert(update.id().hash);
        }
        verdict
    }

    /// Judges a record at the next position.
    fn give(&mut self, record: &Bytes) -> Verdict {
        let verdict = self.judge(&item(self.next, record.clone()));
        if !matches!(verdict, Verdict::Missing(_)) {
            self.next += 1;
        }
        verdict
    }

    fn ignored(&mut self, record: &Bytes) -> Ignored {
        match self.give(record) {
            Verdict::Ignore(reason) => reason,
            other => panic!("{other:?}"),
        }
    }

    fn applied(&mut self, update: &SignedUpdate) {
        match self.give(&bytes_of(update)) {
            Verdict::Apply(applied) => assert_eq!(applied.id(), update.id()),
            other => panic!("{other:?}"),
        }
    }

    fn opened(&mut self, signer: &Signer, number: u64) {
        let verdict = self.give(&epoch(signer, number));
        assert!(matches!(verdict, Verdict::Opened(_)), "{verdict:?}");
    }
}

#[test]
fn records_come_back_as_they_were_and_every_flipped_bit_is_refused() {
    for seed in seeds!(0..6) {
        let mut random = Random::new(seed);
        let random_keys = Keys::new(&mut random, 6, 3);
        let mut state = State::genesis();
        let changes = random_keys.changes(&mut random, &state.model);
        state = state.child(&changes, seed);
        let one = signer(1);
        let records = [
            Record::from(one.sign_update(3, state.update(1))),
            Record::from(one.open_epoch(3)),
            Record::from(one.choose(3, 9, state.id, first_block(), first_block())),
        ];
        for record in records {
            let bytes = record.encode();
            assert_eq!(Record::decode(&bytes).unwrap(), record);
            assert_eq!(keys().verify(&record).unwrap(), one.address());
            for at in 0..bytes.len() {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << random.below(8);
                let verified = Record::decode(&flipped).and_then(|other| {
                    keys().verify(&other)?;
                    Ok(other)
                });
                assert!(verified.is_err(), "byte {at}: {verified:?}");
            }
            for length in 0..bytes.len() {
                assert!(Record::decode(&bytes[..length]).is_err());
            }
            let mut longer = bytes.clone();
            longer.push(0);
            assert!(Record::decode(&longer).is_err());
        }
    }
}

#[test]
fn a_record_counts_if_a_configured_builder_of_the_chain_has_signed_it() {
    let stranger = signer(3);
    let update = bare_update(first_block(), 0);
    let record = Record::from(stranger.sign_update(1, update.clone()));
    let address = stranger.address();
    assert!(matches!(keys().verify(&record), Err(RecordError::Stranger(who)) if who == address));

    let elsewhere = Signer::new(CHAIN + 1, [1; 32]).unwrap();
    let record = Record::from(elsewhere.sign_update(1, update.clone()));
    let refused = keys().verify(&record).unwrap_err().to_string();
    assert_eq!(refused, "a record of chain 1338: this is chain 1337");

    // A signature of one kind is none of another, and one of an epoch none of the next.
    let one = signer(1);
    let signed = Record::from(one.sign_update(1, update)).encode();
    let mut other_epoch = signed.clone();
    // Version, kind, a list header of three bytes, a chain id of three.
    assert_eq!(other_epoch[8], 1);
    other_epoch[8] = 2;
    let other_epoch = Record::decode(&other_epoch).unwrap();
    assert_eq!(other_epoch.epoch(), 2);
    assert!(keys().verify(&other_epoch).is_err());
    assert!(Signer::new(CHAIN, [0; 32]).is_err());
    assert!(Signer::new(CHAIN, [0xff; 32]).is_err());
    assert!(!format!("{one:?}").contains("0101"));
}

#[test]
fn formats_of_records_have_not_changed() {
    let one = signer(1);
    let records = [
        Record::from(one.sign_update(3, bare_update(first_block(), 5))),
        Record::from(one.open_epoch(3)),
        Record::from(one.choose(3, 9, first_block(), first_block(), first_block())),
    ];
    let hashes = records.map(|record| alloy_primitives::keccak256(record.encode()).to_string());
    assert_eq!(hashes, GOLDEN);
}

/// Keccak-256 of encoded records. A change of one is a change of the format.
const GOLDEN: [&str; 3] = [
    "0x625aae730efa5f94845d9349f2b7a082d24c6d5de68f09137e7672ce46f5d636",
    "0x9e9eaefa7593a67b13d90ff50a3fc5baa6af384808b104e8941e994ffb7c0d9c",
    "0x734ccf913cec1b7577e3b60d7d41f36a2fccab7437d1abbefb4e19fcead71ed5",
];

#[test]
fn a_deposed_builder_that_reads_the_tail_first_is_ignored_by_position() {
    let (one, two) = (signer(1), signer(2));
    let mut world = World::new();
    world.opened(&one, 1);
    let first = chain_of(&one, 1, first_block(), 4);
    world.applied(&first[0]);
    world.applied(&first[1]);
    world.opened(&two, 2);
    // It appends right behind the tail, on the right parent, signed and whole.
    let fenced = Ignored::Fenced { epoch: 1, open: 2 };
    assert_eq!(world.ignored(&bytes_of(&first[2])), fenced);
    let second = chain_of(&two, 2, first[1].id(), 2);
    world.applied(&second[0]);
    assert_eq!(world.ignored(&bytes_of(&first[3])), fenced);
    assert_eq!(world.ignored(&choice(&one, 1, 1, first[1].id())), fenced);
    world.applied(&second[1]);
    // It cannot open its epoch again, nor a lower one.
    let reopened = world.ignored(&epoch(&one, 1));
    assert_eq!(reopened, Ignored::OldEpoch { number: 1, open: 2 });
    assert_eq!(world.follower.counts().ignored["fenced"], 3);
    assert_eq!(world.follower.counts().updates, 4);
}

#[test]
fn of_two_builders_that_open_one_epoch_the_first_in_the_stream_counts() {
    let (one, two) = (signer(1), signer(2));
    let mut world = World::new();
    world.opened(&two, 5);
    let late = world.ignored(&epoch(&one, 5));
    assert_eq!(late, Ignored::OldEpoch { number: 5, open: 5 });
    let ones = chain_of(&one, 5, first_block(), 1);
    let twos = chain_of(&two, 5, first_block(), 1);
    assert_eq!(
        world.ignored(&bytes_of(&ones[0])),
        Ignored::OtherBuilder {
            epoch: 5,
            signer: one.address(),
            builder: two.address()
        }
    );
    world.applied(&twos[0]);
    // An epoch that nobody opened, and a number that would leave none for others.
    let ahead = chain_of(&one, 6, twos[0].id(), 1);
    let not_opened = world.ignored(&bytes_of(&ahead[0]));
    assert_eq!(not_opened, Ignored::NotOpened { epoch: 6, open: 5 });
    let far = world.ignored(&epoch(&one, u64::MAX));
    assert!(matches!(far, Ignored::EpochStep { .. }));
    // A gap of numbers is a builder that stopped before it opened its epoch.
    world.opened(&one, 9);
}

#[test]
fn competing_children_are_ordinary_updates_and_repeated_ones_are_known() {
    let one = signer(1);
    let mut world = World::new();
    world.opened(&one, 1);
    let siblings: Vec<_> = (0..3)
        .map(|salt| one.sign_update(1, bare_update(first_block(), salt)))
        .collect();
    siblings.iter().for_each(|update| world.applied(update));
    let again = world.ignored(&bytes_of(&siblings[1]));
    assert_eq!(again, Ignored::Known(siblings[1].id()));
    let passed = world.judge(&item(2, bytes_of(&siblings[0])));
    let expected = Ignored::Passed(StreamPosition(2));
    assert!(matches!(passed, Verdict::Ignore(reason) if reason == expected));
}

#[test]
fn choices_go_forward_and_name_known_blocks() {
    let one = signer(1);
    let mut world = World::new();
    world.opened(&one, 1);
    let chain = chain_of(&one, 1, first_block(), 3);
    world.applied(&chain[0]);
    world.applied(&chain[1]);
    let verdict = world.give(&choice(&one, 1, 1, chain[1].id()));
    assert!(matches!(verdict, Verdict::Choose(_)));
    let repeated = world.ignored(&choice(&one, 1, 1, chain[1].id()));
    assert_eq!(repeated, Ignored::OldChoice { number: 1, last: 1 });
    let back = world.ignored(&choice(&one, 1, 2, chain[0].id()));
    assert!(matches!(back, Ignored::Order { was: 102, .. }), "{back:?}");
    // The head is unknown: the choice waits for it.
    let ahead = choice(&one, 1, 3, chain[2].id());
    let verdict = world.give(&ahead);
    let wanted = Missing::Block(chain[2].id().hash);
    assert!(matches!(verdict, Verdict::Missing(missing) if missing == wanted));
    world.known.insert(chain[2].id().hash);
    assert!(matches!(world.give(&ahead), Verdict::Choose(_)));
}

#[test]
fn reordered_updates_wait_for_the_parent_and_nothing_moves_until_it_is_there() {
    let one = signer(1);
    let mut world = World::new();
    world.opened(&one, 1);
    let chain = chain_of(&one, 1, first_block(), 3);
    let before = world.follower.state().clone();
    let verdict = world.give(&bytes_of(&chain[1]));
    let wanted = chain[0].id().hash;
    assert!(matches!(verdict, Verdict::Missing(Missing::Block(hash)) if hash == wanted));
    assert_eq!(world.follower.state(), &before);
    // A replica returns other blocks, other bytes, then the block.
    let other = bytes_of(&chain[2]);
    assert!(
        world
            .follower
            .verify_block(wanted, &other)
            .unwrap()
            .is_none()
    );
    assert!(world.follower.verify_block(wanted, b"no").is_err());
    let parent = world.follower.verify_block(wanted, &bytes_of(&chain[0]));
    world.known.insert(parent.unwrap().unwrap().id().hash);
    world.applied(&chain[1]);
    // It comes late: it is known by then.
    let late = world.ignored(&bytes_of(&chain[0]));
    assert_eq!(late, Ignored::Known(chain[0].id()));
    // The parent of this one is nowhere.
    let orphan = one.sign_update(1, bare_update(BlockId::new(7, B256::repeat_byte(9)), 0));
    let orphan = item(world.next, bytes_of(&orphan));
    assert!(matches!(world.judge(&orphan), Verdict::Missing(_)));
    let skipped = world.follower.skip(&orphan);
    assert!(matches!(skipped, Verdict::Ignore(Ignored::Skipped(_))));
    world.next += 1;
    world.applied(&chain[2]);
}

#[test]
fn a_damaged_update_is_named_by_position_and_filled_by_hash() {
    let one = signer(1);
    let mut world = World::new();
    world.opened(&one, 1);
    let chain = chain_of(&one, 1, first_block(), 3);
    world.applied(&chain[0]);
    let mut damaged = bytes_of(&chain[1]).to_vec();
    damaged[100] ^= 4;
    let Verdict::Damaged(damage) = world.give(&damaged.into()) else {
        panic!("not damaged")
    };
    let told = damage.to_string();
    assert!(
        told.starts_with("record 3 of the stream is damaged: "),
        "{told}"
    );
    assert!(
        told.ends_with("; a replica or a builder may have it"),
        "{told}"
    );
    // Its child finds that it is missing.
    let child = bytes_of(&chain[2]);
    let wanted = chain[1].id().hash;
    let verdict = world.give(&child);
    assert!(matches!(verdict, Verdict::Missing(Missing::Block(hash)) if hash == wanted));
    world.known.insert(wanted);
    world.applied(&chain[2]);
    // A choice waits for the hole, which may hide an epoch.
    let choose = choice(&one, 1, 1, chain[2].id());
    let Verdict::Missing(Missing::Records(hole)) = world.give(&choose) else {
        panic!("no hole")
    };
    assert_eq!(
        (hole.first, hole.last),
        (StreamPosition(3), StreamPosition(3))
    );
    world.follower.give_up(hole);
    assert!(matches!(world.give(&choose), Verdict::Choose(_)));
    assert_eq!(world.follower.counts().given_up, 1);
}

#[test]
fn an_epoch_in_a_hole_is_filled_and_fences_what_came_after_it() {
    let (one, two) = (signer(1), signer(2));
    let mut world = World::new();
    world.opened(&one, 1);
    let ones = chain_of(&one, 1, first_block(), 3);
    let twos = chain_of(&two, 2, ones[0].id(), 2);
    world.applied(&ones[0]);
    let hidden = item(world.next, Bytes::new());
    assert!(matches!(world.judge(&hidden), Verdict::Damaged(_)));
    world.next += 1;
    // The deposed builder: its update is a block like others, and its choice has to wait.
    world.applied(&ones[1]);
    let deposed = choice(&one, 1, 1, ones[1].id());
    let Verdict::Missing(Missing::Records(hole)) = world.give(&deposed) else {
        panic!("no hole")
    };
    let known = world.known.clone();
    let is_known = |id: BlockId| known.contains(&id.hash);
    let wrong = world.follower.fill(hole.first, b"nonsense", is_known);
    assert!(matches!(wrong, Verdict::Damaged(_)));
    let filled = world.follower.fill(hole.first, &epoch(&two, 2), is_known);
    assert!(matches!(filled, Verdict::Opened(_)));
    let fenced = world.ignored(&deposed);
    assert_eq!(fenced, Ignored::Fenced { epoch: 1, open: 2 });
    world.applied(&twos[0]);
    assert_eq!(world.follower.state().holes, []);
    assert_eq!(world.follower.counts().filled, 1);
}

#[test]
fn positions_that_the_stream_skips_are_a_hole_and_are_filled_in_any_order() {
    let one = signer(1);
    let mut world = World::new();
    world.opened(&one, 1);
    let chain = chain_of(&one, 1, first_block(), 5);
    world.applied(&chain[0]);
    // 3, 4 and 5 are lost, with a choice at 5.
    world.next = 6;
    let verdict = world.give(&bytes_of(&chain[3]));
    assert!(matches!(verdict, Verdict::Missing(Missing::Block(_))));
    let hole = Hole {
        first: StreamPosition(3),
        last: StreamPosition(5),
        epoch: 1,
    };
    assert_eq!(world.follower.state().holes, [hole]);
    let lost = choice(&one, 1, 1, chain[0].id());
    let known = world.known.clone();
    let fill = |world: &mut World, position: u64, record: &[u8]| {
        let known = known.clone();
        let known = |id: BlockId| known.contains(&id.hash) || id == chain[1].id();
        world.follower.fill(StreamPosition(position), record, known)
    };
    // The choice waits for those before it, and an update for its parent.
    let early = fill(&mut world, 5, &lost);
    assert!(matches!(early, Verdict::Missing(Missing::Records(_))));
    let filled = fill(&mut world, 4, &bytes_of(&chain[2]));
    assert!(matches!(filled, Verdict::Apply(_)));
    let filled = fill(&mut world, 3, &bytes_of(&chain[1]));
    assert!(matches!(filled, Verdict::Ignore(Ignored::Known(_))));
    // Whoever answers may lie, so that the hole stays until nobody has anything better.
    let waits = fill(&mut world, 5, &lost);
    let Verdict::Missing(Missing::Records(hole)) = waits else {
        panic!("{waits:?}");
    };
    assert_eq!(
        (hole.first, hole.last),
        (StreamPosition(3), StreamPosition(3))
    );
    world.follower.give_up(hole);
    assert!(matches!(fill(&mut world, 5, &lost), Verdict::Choose(_)));
    assert_eq!(world.follower.state().holes, []);
    world.known.insert(chain[2].id().hash);
    world.applied(&chain[3]);
}

#[test]
fn a_follower_goes_on_from_its_saved_state() {
    for seed in seeds!(0..40) {
        let mut random = Random::new(seed);
        let (one, two) = (signer(1), signer(2));
        let mut records = Vec::<Bytes>::new();
        let (mut epochs, mut tips) = (1, vec![first_block()]);
        records.push(epoch(&one, 1));
        let mut choices = 0;
        for salt in 0..60 {
            let who = if epochs % 2 == 1 { &one } else { &two };
            let parent = tips[random.below(tips.len() as u64) as usize];
            let update = who.sign_update(epochs, bare_update(parent, salt));
            match random.below(10) {
                0 => {
                    epochs += 1;
                    choices = 0;
                    let who = if epochs % 2 == 1 { &one } else { &two };
                    records.push(epoch(who, epochs));
                }
                1 => records.push(vec![1, 2, 3].into()),
                2 => {
                    let old = one.sign_update(epochs - 1, bare_update(parent, salt));
                    records.push(bytes_of(&old));
                }
                3 => {
                    choices += 1;
                    records.push(choice(who, epochs, choices, first_block()));
                }
                _ => {
                    tips.push(update.id());
                    records.push(bytes_of(&update));
                }
            }
        }
        let run = |random: &mut Random, saves: bool| {
            let mut world = World::new();
            let mut log = Vec::new();
            for record in &records {
                let verdict = match world.give(record) {
                    Verdict::Missing(Missing::Records(hole)) => {
                        world.follower.give_up(hole);
                        world.give(record)
                    }
                    verdict => verdict,
                };
                log.push(format!("{verdict:?}"));
                if saves && random.percent(40) {
                    let saved = world.follower.state().encode();
                    let state = FollowerState::decode(&saved).unwrap();
                    assert_eq!(&state, world.follower.state());
                    world.follower = Follower::new(keys(), state);
                    assert!(FollowerState::decode(&saved[1..]).is_err());
                }
            }
            (log, world.follower.state().clone())
        };
        assert_eq!(run(&mut random, false), run(&mut random, true));
    }
}

#[test]
fn a_stream_that_was_replaced_is_noticed_and_a_deposed_builder_stays_deposed() {
    let (one, two) = (signer(1), signer(2));
    let mut world = World::new();
    world.opened(&one, 1);
    world.opened(&two, 2);
    let twos = chain_of(&two, 2, first_block(), 3);
    world.applied(&twos[0]);
    let follower = &mut world.follower;
    assert!(follower.is_same_stream(Some(&bytes_of(&twos[0]))));
    assert!(!follower.is_same_stream(Some(&bytes_of(&twos[1]))));
    assert!(!follower.is_same_stream(None));
    follower.rewind(StreamPosition(0));
    world.next = 1;
    let ones = chain_of(&one, 1, first_block(), 1);
    let old = world.ignored(&epoch(&one, 1));
    assert_eq!(old, Ignored::OldEpoch { number: 1, open: 2 });
    let fenced = world.ignored(&bytes_of(&ones[0]));
    assert_eq!(fenced, Ignored::Fenced { epoch: 1, open: 2 });
    assert!(matches!(
        world.ignored(&epoch(&two, 2)),
        Ignored::OldEpoch { .. }
    ));
    assert!(matches!(
        world.ignored(&bytes_of(&twos[0])),
        Ignored::Known(_)
    ));
    world.applied(&twos[1]);
}

#[test]
fn holes_are_bounded() {
    let one = signer(1);
    let mut world = World::new();
    world.opened(&one, 1);
    for update in chain_of(&one, 1, first_block(), 100) {
        assert!(matches!(
            world.give(&Bytes::from_static(b"?")),
            Verdict::Damaged(_)
        ));
        world.applied(&update);
    }
    assert_eq!(world.follower.state().holes.len(), 64);
    assert_eq!(world.follower.counts().given_up, 36);
    let state = world.follower.state();
    assert_eq!(&FollowerState::decode(&state.encode()).unwrap(), state);
    let none = BuilderKeys {
        chain_id: CHAIN,
        keys: Vec::new(),
    };
    let mut nobody = Follower::new(none, FollowerState::default());
    let refused = nobody.step(&item(1, epoch(&one, 1)), |_| true);
    assert!(matches!(refused, Verdict::Damaged(_)));
}

/// Whatever a stream does with appends, but for damage: what it loses, repeats and has no room for.
#[test]
fn records_published_together_are_there_once_and_in_order() {
    let signer = signer(1);
    let faults = [
        StreamFault::Lost,
        StreamFault::NoAnswer,
        StreamFault::FalseDuplicate,
        StreamFault::AnsweredTwice,
        StreamFault::Full,
    ];
    for seed in seeds!(0..200) {
        let mut random = Random::new(seed);
        let stream = MemoryStream::new();
        for _ in 0..40 {
            let fault = random.percent(30);
            stream.plan(fault.then(|| faults[random.below(faults.len() as u64) as usize]));
        }
        let mut records = vec![Record::from(signer.open_epoch(1))];
        for (number, update) in (1..).zip(chain_of(&signer, 1, first_block(), 8)) {
            let id = update.id();
            records.push(update.into());
            records.push(signer.choose(1, number, id, id, id).into());
        }
        let mut publisher = Publisher::new(stream.clone(), keys(), 1).unwrap();
        let mut left = &records[..];
        for _ in 0..100 {
            let count = left.len().min(1 + random.below(6) as usize);
            let (done, published) = publisher.publish_all(&left[..count]);
            assert!(done == count || published.is_err());
            left = &left[done..];
        }
        assert!(left.is_empty(), "{} records are left", left.len());
        let mut reader = stream.reader(StreamPosition(1)).unwrap();
        let found = std::iter::from_fn(|| reader.next(Duration::ZERO).unwrap());
        let found: Vec<_> = found.map(|item| item.record.unwrap()).collect();
        let encoded = records.iter().map(|record| Bytes::from(record.encode()));
        assert_eq!(found, encoded.collect::<Vec<_>>());
    }
}
