//! Hashing large levels on several threads gives the same roots as on one, and as alloy-trie.

use crate::common::{Model, Random};
use cambium_keccak::Batch;
use cambium_primitives::{AccountDiff, AccountUpdate, Changes, Path};
use cambium_trie::{HashJob, NoResolve, PartialTrie, Spread, commit_with};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A thread for each job but the first, which comes last.
struct Scoped {
    threads: usize,
    jobs: AtomicUsize,
}

impl Spread for Scoped {
    fn threads(&self) -> usize {
        self.threads
    }

    fn run(&self, jobs: &mut [HashJob<'_>]) {
        assert!((2..=self.threads).contains(&jobs.len()));
        self.jobs.fetch_add(jobs.len(), Ordering::Relaxed);
        let (first, others) = jobs.split_first_mut().expect("two jobs or more");
        std::thread::scope(|scope| {
            for job in others {
                scope.spawn(|| job.run());
            }
        });
        first.run();
    }
}

#[test]
fn several_threads_give_the_roots_that_one_gives() {
    let random = &mut Random(7);
    let mut model = Model::default();
    let contract = random.b256();
    // Small values make some leaves inlined, where two slots share all but their last nibbles.
    let mut slots = random.close_keys(6_000);
    slots.extend((0..20_000).map(|_| random.b256()));
    let accounts: Vec<_> = (0..6_000).map(|_| random.b256()).collect();
    let mut tries = [2, 3, 16].map(|threads| {
        let jobs = AtomicUsize::new(0);
        (Scoped { threads, jobs }, PartialTrie::new(Path::EMPTY))
    });
    for step in 0..3 {
        let share = |all: &[_], random: &mut Random| -> Vec<_> {
            let mut some = all.to_vec();
            some.retain(|_| step == 0 || random.one_in(4));
            some.sort_unstable();
            some.dedup();
            some
        };
        let account = AccountUpdate::Put(random.account());
        let slots = share(&slots, random);
        let slots = slots.into_iter().map(|slot| (slot, random.value()));
        let mut changes = vec![AccountDiff {
            path: contract,
            account,
            wipe: false,
            slots: slots.collect(),
        }];
        for path in share(&accounts, random) {
            changes.push(AccountDiff {
                path,
                account: AccountUpdate::Put(random.account()),
                wipe: false,
                slots: vec![],
            });
        }
        let changes = Changes::new(changes);
        model.apply(&changes);
        for (spread, trie) in &mut tries {
            trie.apply(changes.accounts(), &mut NoResolve)
                .expect("nothing is absent");
            commit_with(&mut [trie], &mut Batch::new(), spread);
            assert_eq!(trie.state_root(), Some(model.root()), "step {step}");
            let jobs = spread.jobs.swap(0, Ordering::Relaxed);
            assert!(jobs >= spread.threads, "only {jobs} jobs in step {step}");
        }
    }
}
