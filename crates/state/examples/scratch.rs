use alloy_primitives::{B256, Bytes, U256, keccak256};
use cambium_primitives::*;
use cambium_state::*;
use std::{sync::Arc, time::Instant};
fn key(n: u64) -> B256 {
    keccak256(n.to_be_bytes())
}
fn main() {
    let arg = |i: usize, d: u64| {
        std::env::args()
            .nth(i)
            .and_then(|a| a.parse().ok())
            .unwrap_or(d)
    };
    let n = arg(1, 1_000_000);
    let mem = arg(2, 1024) << 20;
    let batches = arg(3, 10);
    let cold = arg(4, 0) == 1;
    let dir = format!("/tmp/scratchdb-{n}-{}", std::process::id());
    let disk = Arc::new(StdDisk::new(&dir));
    let options = Options {
        memory_bytes: mem,
        ..Options::default()
    };
    let t = Instant::now();
    let mut loader = Loader::new();
    for i in 0..n {
        loader.account(
            key(i),
            &Account {
                nonce: 0,
                balance: U256::from(1_000_000_000_000_000_000u64 + i),
                ..Default::default()
            },
            &[],
        );
    }
    let loaded = loader.load(disk.clone(), options).unwrap();
    let meta = |number: u64, root, parent| BlockMeta {
        id: BlockId::new(number, B256::from(U256::from(number + 1))),
        parent,
        state_root: root,
        body: Bytes::new(),
    };
    let g = meta(0, loaded.root(), B256::ZERO);
    let mut db = loaded.create(g.clone(), vec![]).unwrap();
    println!("load {:.0}/s", n as f64 / t.elapsed().as_secs_f64());
    println!("{:?}", db.stats().unwrap());
    if cold {
        drop(db);
        std::process::Command::new("sh")
            .arg("-c")
            .arg("sync; echo 3 > /proc/sys/vm/drop_caches")
            .status()
            .unwrap();
        let t = Instant::now();
        db = Db::open(disk, options).unwrap().0;
        println!("open {:?}", t.elapsed());
    }
    let mut rng = 88172645463325252u64;
    let mut next = move || {
        rng ^= rng << 13;
        rng ^= rng >> 7;
        rng ^= rng << 17;
        rng
    };
    let mut fresh = n;
    let mut parent = g.id.hash;
    let mut all = Instant::now();
    for b in 1..=batches {
        let mut keys: Vec<B256> = Vec::with_capacity(50_000);
        for _ in 0..25_000 {
            keys.push(key(next() % n));
            if next() % 4 == 0 {
                keys.push(key(fresh));
                fresh += 1;
            } else {
                keys.push(key(next() % n));
            }
        }
        keys.sort_unstable();
        keys.dedup();
        let c0 = db.counters();
        let t = Instant::now();
        let view = db.view().unwrap();
        let old = read(&view, &keys);
        let t_read = t.elapsed();
        let changes = keys
            .iter()
            .zip(old)
            .map(|(k, a)| {
                let mut a = a.unwrap_or_default();
                a.nonce += 1;
                a.balance += U256::from(1u64);
                AccountChange {
                    path: *k,
                    account: AccountUpdate::Put(a),
                    wipe: false,
                    slots: vec![],
                }
            })
            .collect();
        let changes = Changes::new(changes);
        let t_ch = t.elapsed();
        let staged = db.session(view).finish(changes, vec![]).unwrap();
        let t_root = t.elapsed();
        let m = meta(b, staged.root(), parent);
        parent = m.id.hash;
        let sealed = staged.seal(m).unwrap();
        let t_seal = t.elapsed();
        sealed.commit().unwrap();
        let t_commit = t.elapsed();
        let c = db.counters();
        let d = |f: fn(&CounterValues) -> u64| f(&c) - f(&c0);
        println!(
            "b{b:3} total {:4} read {:4} build {:3} root {:4} seal {:3} commit {:4} | revert {} apply {} hash {} hashes {} reads v{} t{} hits {} merges {} pages {} MB {:.1} wait {}",
            t_commit.as_millis(),
            t_read.as_millis(),
            (t_ch - t_read).as_millis(),
            (t_root - t_ch).as_millis(),
            (t_seal - t_root).as_millis(),
            (t_commit - t_seal).as_millis(),
            d(|c| c.revert_ns) / 1_000_000,
            d(|c| c.apply_ns) / 1_000_000,
            d(|c| c.hash_ns) / 1_000_000,
            d(|c| c.node_hashes),
            d(|c| c.page_reads_value),
            d(|c| c.page_reads_trie),
            d(|c| c.page_cache_hits),
            d(|c| c.merges),
            d(|c| c.pages_written),
            d(|c| c.page_bytes_written) as f64 / 1e6,
            d(|c| c.merge_wait_ns) / 1_000_000
        );
    }
    let el = all.elapsed();
    println!(
        "transfers/s {:.0}",
        batches as f64 * 25_000.0 / el.as_secs_f64()
    );
    println!("{:?}\n{:?}", db.counters(), db.stats().unwrap());
    println!(
        "{}",
        std::fs::read_to_string("/proc/self/status")
            .unwrap()
            .lines()
            .filter(|l| l.starts_with("VmHWM") || l.starts_with("VmRSS"))
            .collect::<Vec<_>>()
            .join(" ")
    );
    println!(
        "{}",
        std::fs::read_to_string("/proc/self/io")
            .unwrap()
            .replace('\n', " ")
    );
    drop(db);
    std::fs::remove_dir_all(dir).unwrap();
    let _ = &mut all;
}
fn read(view: &View, keys: &[B256]) -> Vec<Option<Account>> {
    view.accounts(keys).unwrap()
}
