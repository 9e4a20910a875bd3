//! What travels between processes: it comes back as it was, and malformed bytes are errors.

use crate::common::{Keys, State, random_hash};
use cambium_cluster::{BlockUpdate, NodeBag, ReadGroup, ReadRequest, ShardLimits, ShardRange};
use cambium_seeds::{Random, seeds};
use cambium_trie::{BagLevels, Deletes, ProofTargets};

fn mangled(random: &mut Random, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    match random.below(3) {
        0 => bytes.truncate(random.below(bytes.len() as u64) as usize),
        1 => {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] = random.next() as u8;
        }
        _ => bytes.push(random.next() as u8),
    }
    bytes
}

#[test]
fn messages_come_back_as_they_were() {
    for seed in seeds!(0..30) {
        let mut random = Random::new(seed);
        let keys = Keys::new(&mut random, 12, 6);
        let mut state = State::genesis();
        for salt in 0..8 {
            let changes = keys.changes(&mut random, &state.model);
            state = state.child(&changes, salt);
        }
        let mut update = state.update(1);
        update.storage_roots = vec![(random_hash(&mut random), random_hash(&mut random))];
        let bytes = update.encode();
        assert_eq!(BlockUpdate::decode(&bytes).unwrap(), update);

        let group = |random: &mut Random| ReadGroup {
            targets: ProofTargets::new(
                (0..random.below(4))
                    .map(|_| {
                        let slots = (0..random.below(3)).map(|_| random_hash(random)).collect();
                        (random_hash(random), slots)
                    })
                    .collect(),
            ),
            levels: BagLevels {
                accounts: random.below(65) as u8,
                slots: random.below(65) as u8,
                deletes: [Deletes::Nothing, Deletes::Slots, Deletes::All][random.below(3) as usize],
            },
        };
        let request = ReadRequest {
            block: state.id,
            groups: (0..random.below(4)).map(|_| group(&mut random)).collect(),
            codes: vec![(random_hash(&mut random), random_hash(&mut random))],
            slots_from: random
                .percent(50)
                .then(|| (random_hash(&mut random), random_hash(&mut random))),
        };
        let asked = request.encode();
        assert_eq!(ReadRequest::decode(&asked).unwrap(), request);

        let shard = state.shard(ShardRange::new(0, 1).unwrap(), ShardLimits::default());
        let all = ReadGroup {
            targets: ProofTargets::of_changes(&state.whole()),
            levels: BagLevels {
                accounts: 0,
                slots: 0,
                deletes: Deletes::Nothing,
            },
        };
        let all = ReadRequest {
            block: state.id,
            groups: vec![all],
            codes: Vec::new(),
            slots_from: None,
        };
        let bag = NodeBag {
            codes: vec![vec![1, 2, 3].into()],
            ..shard.read(&all).unwrap()
        };
        let answered = bag.encode();
        assert_eq!(NodeBag::decode(&answered).unwrap(), bag);
        // Nearly all hashes are those of nodes that are there.
        assert!(
            bag.nodes.len() < 5 || answered.len() * 10 < bag.bytes() * 9,
            "{} of {}",
            answered.len(),
            bag.bytes()
        );

        for _ in 0..200 {
            // Any result will do, but for a panic.
            let _ = BlockUpdate::decode(&mangled(&mut random, &bytes));
            let _ = ReadRequest::decode(&mangled(&mut random, &asked));
            let _ = NodeBag::decode(&mangled(&mut random, &answered));
        }
        let last = bytes.len() - 1;
        assert!(BlockUpdate::decode(&bytes[..last]).is_err());
        assert!(ReadRequest::decode(&asked[..asked.len() - 1]).is_err());
        assert!(NodeBag::decode(&answered[..answered.len() - 1]).is_err());
    }
}
