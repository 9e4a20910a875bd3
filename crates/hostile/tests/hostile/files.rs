//! Files of blocks and of access lists with any byte changed: their readable parts, and where an import of them ends.

use crate::ALONE;
use alloy_primitives::{B256, Bytes};
use alloy_rlp::Decodable;
use cambium_chain::{
    AccessListReader, AccessListWriter, BlockSource, Chain, ChainError, ChainSealer, FileError,
    Fork, Genesis, WithAccessLists,
};
use cambium_hostile::{ChangedBytes, Watchdog, all_or, byte_changes};
use cambium_primitives::BlockId;
use cambium_state::{FaultyDisk, Options};
use cambium_testkit::{Backend, NaiveChain, genesis_state, is_long, most_during, say};
use cambium_workload::{BlockSize, Workload, WorkloadParams};
use flate2::{Compression, read::MultiGzDecoder, write::GzEncoder};
use std::{
    fs,
    io::{Read, Write},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// Changed files that are read, in the short form of the tests.
const READS: usize = 6000;
/// Changed files that are imported: twenty times as many in the long form.
const IMPORTS: usize = 300;
/// Longer than any error message that helps.
const MESSAGE_BYTES_MAX: usize = 500;
/// Far more memory than a reader takes beside the file, which it reads in pieces.
const READER_BYTES_MAX: usize = 4 << 20;
/// Far more memory than an import of so small a file takes.
const IMPORT_BYTES_MAX: usize = 64 << 20;
/// Longer than reading or importing a file takes, by far.
const STEP_MAX: Duration = Duration::from_secs(20);

fn imports() -> usize {
    IMPORTS * if is_long() { 20 } else { 1 }
}

fn options() -> Options {
    Options {
        memory_bytes: 4 << 20,
        ..Options::default()
    }
}

/// A small chain: its database with the genesis block alone, and its blocks with their access lists.
struct Story {
    disk: FaultyDisk,
    ids: Vec<BlockId>,
    blocks: Vec<Bytes>,
    lists: Vec<Vec<u8>>,
    naive: NaiveChain,
    dir: tempfile::TempDir,
}

impl Story {
    fn new(fork: Fork) -> Self {
        let params = WorkloadParams {
            fork,
            accounts: 12,
            senders: Some(6),
            holders: Some(8),
            pools: 1,
            blocks: 3,
            block_size: BlockSize::Transactions(2),
            erc20_percent: 60,
            ..WorkloadParams::default()
        };
        let workload = Workload::new(params).unwrap();
        let disk = FaultyDisk::new(1);
        let shared = Arc::new(disk.clone());
        let chain = workload.init(shared, options(), &mut |_| {}).unwrap();
        let genesis = chain.block(0).unwrap().header;
        let mut ids = vec![chain.db().genesis()];
        chain.db().flush(0).unwrap();
        drop(chain);
        let begun = disk.duplicate();
        let (chain, _) = Chain::open(Arc::new(disk), options()).unwrap();
        workload
            .generate(&genesis, &mut ChainSealer(&chain), |_| Ok(()))
            .unwrap();
        let numbers = 1..=3;
        ids.extend(
            numbers.clone().map(|number| {
                BlockId::new(number, chain.block(number).unwrap().header.hash_slow())
            }),
        );
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("genesis.json");
        workload
            .write_genesis(&mut fs::File::create(&file).unwrap())
            .unwrap();
        let (changes, codes) = genesis_state(Genesis::read(&file).unwrap().1);
        let naive = NaiveChain::new(chain.spec().clone(), genesis, changes, codes).unwrap();
        Self {
            disk: begun,
            blocks: numbers
                .clone()
                .map(|number| chain.block_rlp(number).unwrap())
                .collect(),
            lists: numbers
                .map(|number| chain.access_list(number).unwrap().encode())
                .collect(),
            ids,
            naive,
            dir,
        }
    }

    fn chain_file(&self) -> Vec<u8> {
        self.blocks.concat()
    }

    fn list_file(&self) -> Vec<u8> {
        let path = self.dir.path().join("lists.rlp");
        let mut writer = AccessListWriter::create(&path).unwrap();
        for (id, list) in self.ids[1..].iter().zip(&self.lists) {
            writer.write(*id, list).unwrap();
        }
        writer.finish().unwrap();
        fs::read(path).unwrap()
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.dir.path().join(name);
        // A file that is emptied and written again is written to the device by some file systems.
        let _ = fs::remove_file(&path);
        fs::write(&path, bytes).unwrap();
        path
    }

    /// The database with the genesis block alone.
    fn open(&self, batch: usize) -> Chain {
        let (chain, _) = Chain::open(Arc::new(self.disk.duplicate()), options()).unwrap();
        chain.with_batch(batch)
    }

    /// How many of `blocks` are good, by the naive chain.
    fn good(&mut self, blocks: &[Item<'_>]) -> usize {
        let is_good = |block: &&Item<'_>| self.naive.import(block.bytes, None).is_ok();
        blocks.iter().take_while(is_good).count()
    }
}

/// An item of a file, cut out by a model of RLP that shares no code with the reader.
#[derive(Clone, Copy)]
struct Item<'a> {
    offset: usize,
    bytes: &'a [u8],
}

/// The items of a file; and where the first is that is none, if the file does not end before.
fn split(bytes: &[u8]) -> (Vec<Item<'_>>, Option<usize>) {
    let (mut items, mut offset) = (Vec::new(), 0);
    while offset < bytes.len() {
        let Some(len) = list_len(&bytes[offset..]) else {
            return (items, Some(offset));
        };
        let bytes = &bytes[offset..offset + len];
        items.push(Item { offset, bytes });
        offset += len;
    }
    (items, None)
}

/// Bytes of the list that `bytes` begin with, if it is there.
fn list_len(bytes: &[u8]) -> Option<usize> {
    let first = usize::from(bytes[0]);
    let (prefix, payload) = match first {
        ..0xc0 => return None,
        0xc0..0xf8 => (1, first - 0xc0),
        0xf8.. => {
            let digits = bytes.get(1..first - 0xf6)?;
            let len = digits
                .iter()
                .fold(0u128, |len, digit| len << 8 | u128::from(*digit));
            if digits[0] == 0 || !(56..=64 << 20).contains(&len) {
                return None;
            }
            (1 + digits.len(), len as usize)
        }
    };
    (prefix + payload <= bytes.len()).then_some(prefix + payload)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Output of a gzip file before it is found to be broken, and whether it is.
fn unpacked(bytes: &[u8]) -> (Vec<u8>, bool) {
    let mut out = Vec::new();
    let ended = MultiGzDecoder::new(bytes).read_to_end(&mut out);
    (out, ended.is_ok())
}

fn brief(error: &FileError, path: &Path, case: &ChangedBytes) -> String {
    let message = error.to_string();
    assert!(
        message.starts_with(&path.display().to_string()),
        "{case}: {message}"
    );
    assert!(message.len() < MESSAGE_BYTES_MAX, "{case}: {message}");
    message
}

/// All items of a reader, and the error in which they end. After an error there is nothing.
fn drain<T>(
    mut reader: impl Iterator<Item = Result<T, FileError>>,
    case: &ChangedBytes,
) -> (Vec<T>, Option<FileError>) {
    let mut items = Vec::new();
    for item in reader.by_ref() {
        match item {
            Ok(item) => items.push(item),
            Err(error) => {
                assert!(reader.next().is_none(), "{case}: something after {error}");
                return (items, Some(error));
            }
        }
    }
    (items, None)
}

#[test]
fn a_chain_file_with_any_byte_changed_is_read_as_far_as_it_goes() {
    let _alone = ALONE.lock();
    let story = Story::new(Fork::Osaka);
    let watchdog = Watchdog::new(STEP_MAX);
    let plain = story.chain_file();
    for (name, good) in [("chain.rlp", plain.clone()), ("chain.rlp.gz", gzip(&plain))] {
        let is_packed = name.ends_with("gz");
        let (mut tried, mut read, mut broken) = (0, 0, 0);
        for changed in byte_changes(&good, all_or(READS), 23) {
            let path = story.write(name, &changed.bytes);
            let ((blocks, error), most) = watchdog.step(&changed, || {
                most_during(|| match BlockSource::open(&path) {
                    Ok(source) => drain(source, &changed),
                    Err(error) => (Vec::new(), Some(error)),
                })
            });
            tried += 1;
            assert!(most < READER_BYTES_MAX, "{changed}: {most} bytes of memory");
            let is_gzip = changed.bytes.starts_with(&[0x1f, 0x8b]);
            let is_era1 = changed.bytes.starts_with(b"e2");
            let (content, is_whole) = match is_gzip {
                true => unpacked(&changed.bytes),
                false => (changed.bytes.clone(), true),
            };
            let (items, stop) = split(&content);
            read += blocks.len();
            if let Some(error) = &error {
                broken += 1;
                let message = brief(error, &path, &changed);
                // The output of a broken packing is unspecified.
                let at = stop.filter(|_| is_whole && !is_era1);
                let place = at.map(|at| format!("byte {at} ("));
                assert!(
                    place.is_none_or(|place| message.contains(&place)),
                    "{changed}: {message}"
                );
            }
            let is_good = stop.is_none() && is_whole;
            assert_eq!(error.is_none(), is_good, "{changed}: {error:?}");
            assert!(
                blocks.len() <= items.len() && (!is_whole || blocks.len() == items.len()),
                "{changed}"
            );
            for (block, item) in blocks.iter().zip(items) {
                assert_eq!(
                    (block.place.offset as usize, &block.rlp[..]),
                    (item.offset, item.bytes)
                );
                assert_eq!(block.place.unpacked, is_packed, "{changed}");
                if let Ok(decoded) = block.decode() {
                    assert_eq!(alloy_rlp::encode(&decoded), item.bytes, "{changed}");
                    assert_eq!(block.header().unwrap(), decoded.header, "{changed}");
                    assert_eq!(block.number(), Some(decoded.header.number), "{changed}");
                }
            }
        }
        say(&format!(
            "{name} of {} bytes: {tried} changed ones, {read} blocks read, {broken} ended in an error",
            good.len()
        ));
        assert!(broken > tried / 20 && broken < tried);
    }
}

#[test]
fn a_file_of_access_lists_with_any_byte_changed_is_read_as_far_as_it_goes() {
    let _alone = ALONE.lock();
    let story = Story::new(Fork::Osaka);
    let watchdog = Watchdog::new(STEP_MAX);
    let good = story.list_file();
    let blocks = story.write("chain.rlp", &story.chain_file());
    let (mut tried, mut read, mut broken, mut given) = (0, 0, 0, 0);
    for changed in byte_changes(&good, all_or(READS / 2), 29) {
        let path = story.write("lists.rlp", &changed.bytes);
        let open = || AccessListReader::open(&path).unwrap();
        let ((lists, error), most) =
            watchdog.step(&changed, || most_during(|| drain(open(), &changed)));
        tried += 1;
        read += lists.len();
        assert!(most < READER_BYTES_MAX, "{changed}: {most} bytes of memory");
        // A file that begins as gzip does is none.
        if changed.bytes.starts_with(&[0x1f, 0x8b]) {
            continue;
        }
        let (items, stop) = split(&changed.bytes);
        let records: Vec<_> = items.iter().map_while(|item| record(item.bytes)).collect();
        let stop = items.get(records.len()).map(|item| item.offset).or(stop);
        assert_eq!(lists, records, "{changed}");
        assert_eq!(error.is_some(), stop.is_some(), "{changed}: {error:?}");
        if let (Some(error), Some(stop)) = (error, stop) {
            broken += 1;
            let message = brief(&error, &path, &changed);
            let place = format!("access list at byte {stop} (");
            assert!(message.contains(&place), "{changed}: {message}");
        }

        // Blocks get the lists that are of them, whole and in order, and no others.
        let both = WithAccessLists::new(BlockSource::open(&blocks).unwrap(), open());
        let (both, error) = match both {
            Ok(both) => drain(both, &changed),
            Err(error) => (Vec::new(), Some(error)),
        };
        let mut records = records.into_iter();
        for (block, (id, rlp)) in both.iter().zip(story.ids[1..].iter().zip(&story.blocks)) {
            assert_eq!(block.rlp, *rlp, "{changed}");
            if let Some(list) = &block.access_list {
                given += 1;
                let (of, expected) = records.next().expect("no more than there are");
                assert_eq!((of.hash, list), (id.hash, &expected), "{changed}");
            }
        }
        if let Some(error) = error {
            brief(&error, &path, &changed);
        }
    }
    say(&format!(
        "lists of {} bytes: {tried} changed files, {read} lists read, {broken} ended in an error; \
         {given} lists given to blocks",
        good.len()
    ));
    assert!(broken > tried / 20 && given > tried);
}

/// Readers of both kinds of files, and what they hold, of a file that claims as much as it may.
#[test]
fn a_claim_costs_what_is_there_and_not_what_is_claimed() {
    let _alone = ALONE.lock();
    let story = Story::new(Fork::Osaka);
    let good = [story.chain_file(), story.list_file()];
    // A list of 64 MiB and its prefix, one a byte longer, and one of a thousand million bytes; in it
    // another that claims more.
    let inner = [0xfb, 0x3b, 0x9a, 0xca, 0x00];
    for (claim, words) in [
        (
            [0xfb, 0x03, 0xff, 0xff, 0xfb],
            "cut short: its header claims 67108864 bytes",
        ),
        (
            [0xfb, 0x03, 0xff, 0xff, 0xfc],
            "header claims 67108865 bytes, over the limit of 67108864",
        ),
        (
            inner,
            "header claims 1000000005 bytes, over the limit of 67108864",
        ),
    ] {
        for is_packed in [false, true] {
            let files = good
                .each_ref()
                .map(|good| [&good[..], &claim, &inner].concat());
            let [blocks, lists] = files.map(|bytes| if is_packed { gzip(&bytes) } else { bytes });
            let (blocks, lists) = (story.write("chain", &blocks), story.write("lists", &lists));
            let (ends, most) = most_during(|| {
                let blocks = BlockSource::open(&blocks).unwrap();
                let lists = AccessListReader::open(&lists).unwrap();
                [
                    blocks.map(|block| block.map(|_| ())).collect::<Vec<_>>(),
                    lists.map(|list| list.map(|_| ())).collect(),
                ]
            });
            assert!(most < READER_BYTES_MAX, "{most} bytes of memory");
            for end in ends {
                assert_eq!(end.len(), 4);
                let error = end[3].as_ref().unwrap_err().to_string();
                assert!(error.contains(words), "{error}");
            }
        }
    }
}

/// Number, hash and list, by a model.
fn record(bytes: &[u8]) -> Option<(BlockId, Bytes)> {
    let head = list_len(bytes).filter(|len| *len == bytes.len());
    let prefix = match bytes[0] {
        0xf8.. => 1 + usize::from(bytes[0] - 0xf7),
        _ => 1,
    };
    head?;
    let mut rest = &bytes[prefix..];
    let number = u64::decode(&mut rest).ok()?;
    let (hash, rest) = rest.split_at_checked(33)?;
    let is_hash = hash[0] == 0xa0;
    let list = rest.first().and_then(|_| list_len(rest))?;
    let id = BlockId::new(number, B256::from_slice(&hash[1..]));
    (is_hash && list == rest.len()).then(|| (id, Bytes::copy_from_slice(rest)))
}

/// Imports end at the last block that the naive chain takes.
#[test]
fn an_import_of_a_chain_file_with_any_byte_changed_ends_at_the_last_good_block() {
    let _alone = ALONE.lock();
    let mut story = Story::new(Fork::Amsterdam);
    let watchdog = Watchdog::new(STEP_MAX);
    let good = story.chain_file();
    let good_path = story.write("good.rlp", &good);
    let (mut tried, mut whole, mut others) = (0, 0, 0);
    for changed in byte_changes(&good, imports(), 31) {
        let path = story.write("chain.rlp", &changed.bytes);
        if changed.bytes.starts_with(&[0x1f, 0x8b]) || changed.bytes.starts_with(b"e2") {
            continue;
        }
        tried += 1;
        let (items, stop) = split(&changed.bytes);
        let count = story.good(&items);
        let expected = match count {
            0 => story.ids[0].hash,
            count => hash_of(items[count - 1].bytes),
        };
        let chain = story.open([1, 4][tried % 2]);
        let (imported, most) = watchdog.step(&changed, || {
            most_during(|| chain.import(BlockSource::open(&path)?, &mut |_| {}))
        });
        assert!(most < IMPORT_BYTES_MAX, "{changed}: {most} bytes of memory");
        let head = chain.db().head();
        assert_eq!(
            (head.number, head.hash),
            (count as u64, expected),
            "{changed}: {imported:?}"
        );
        let header = chain.block(head.number).unwrap().header;
        assert_eq!(chain.db().view().unwrap().state_root(), header.state_root);
        let is_good = count == items.len() && stop.is_none();
        match imported {
            Ok(summary) => {
                whole += 1;
                assert!(is_good, "{changed}: nothing is wrong with it");
                assert_eq!(summary.done.blocks, count as u64, "{changed}");
            }
            Err(error) => {
                assert!(!is_good, "{changed}: {error}");
                let message = error.to_string();
                assert!(message.len() < MESSAGE_BYTES_MAX, "{changed}: {message}");
                match error {
                    ChainError::File(error) => {
                        let message = brief(&error, &path, &changed);
                        let place = items.get(count).map(|item| item.offset).or(stop);
                        let place = format!("byte {} (", place.unwrap());
                        assert!(message.contains(&place), "{changed}: {message}");
                    }
                    ChainError::Block { id, .. } => {
                        assert_eq!(id.hash, hash_of(items[count].bytes), "{changed}: {message}");
                    }
                    error => panic!("{changed}: {error}"),
                }
            }
        }
        others += usize::from(head.number > 0 && head != story.ids[count]);
        // The good file goes on from there, or beside it.
        if tried % 8 == 0 {
            let source = BlockSource::open(&good_path).unwrap();
            chain.import(source, &mut |_| {}).unwrap();
            assert_eq!(chain.db().head(), story.ids[3], "{changed}");
        }
    }
    say(&format!(
        "imports of {} changed files of {} bytes: {whole} without an error, {others} with another block \
         for a head",
        tried,
        good.len()
    ));
    assert!(others > 0 && tried > IMPORTS / 2);
}

/// The hash of the header in a block's RLP, which may be no block.
fn hash_of(block: &[u8]) -> B256 {
    let header = alloy_rlp::Header::decode_bytes(&mut &block[..], true)
        .ok()
        .and_then(|mut fields| alloy_consensus::Header::decode(&mut fields).ok());
    header.map_or(B256::ZERO, |header| header.hash_slow())
}

/// A list does not decide where a chain leads, whether or not the header names it.
#[test]
fn an_import_with_access_lists_of_which_any_byte_is_changed_stays_on_the_chain() {
    let _alone = ALONE.lock();
    for fork in [Fork::Osaka, Fork::Amsterdam] {
        let story = Story::new(fork);
        let watchdog = Watchdog::new(STEP_MAX);
        let good = story.list_file();
        let blocks = story.write("chain.rlp", &story.chain_file());
        let (mut tried, mut whole, mut ends) = (0, 0, [0; 4]);
        for changed in byte_changes(&good, imports() / 2, 37) {
            let path = story.write("lists.rlp", &changed.bytes);
            let (batch, is_applying) = ([1, 4][tried / 2 % 2], tried % 2 == 1);
            let chain = story.open(batch).with_applying(is_applying);
            tried += 1;
            let (imported, most) = watchdog.step(&changed, || {
                most_during(|| {
                    let lists = AccessListReader::open(&path)?;
                    let source = WithAccessLists::new(BlockSource::open(&blocks)?, lists)?;
                    chain.import(source, &mut |_| {})
                })
            });
            assert!(most < IMPORT_BYTES_MAX, "{changed}: {most} bytes of memory");
            let head = chain.db().head();
            assert_eq!(
                head, story.ids[head.number as usize],
                "{changed}: {imported:?}"
            );
            ends[head.number as usize] += 1;
            let header = chain.block(head.number).unwrap().header;
            assert_eq!(chain.db().view().unwrap().state_root(), header.state_root);
            match imported {
                Ok(_) => {
                    whole += 1;
                    assert_eq!(head.number, 3, "{changed}");
                }
                Err(error) => {
                    let message = error.to_string();
                    assert!(message.len() < MESSAGE_BYTES_MAX, "{changed}: {message}");
                    match error {
                        ChainError::File(error) => {
                            brief(&error, &path, &changed);
                            // All blocks whose lists could be read are there; a list that is left over
                            // is known when all are.
                            let passed = match &error {
                                FileError::BadFile { .. } => Some(3),
                                // A list of another block is known when its own has come.
                                FileError::OtherBlocks { block, .. } => {
                                    Some(block.number as usize - 1)
                                }
                                _ => None,
                            };
                            let records = split(&changed.bytes).0.into_iter();
                            let records = records.map_while(|item| record(item.bytes)).count();
                            let expected = passed.unwrap_or(records);
                            assert_eq!(head.number as usize, expected, "{changed}: {message}");
                        }
                        ChainError::Block { id, .. } => {
                            assert_eq!(
                                id,
                                story.ids[head.number as usize + 1],
                                "{changed}: {message}"
                            );
                        }
                        error => panic!("{changed}: {error}"),
                    }
                }
            }
        }
        say(&format!(
            "{fork:?}: imports with {tried} changed files of lists of {} bytes: {whole} without an error, \
             at blocks 0 to 3: {ends:?}",
            good.len()
        ));
        assert!(ends.iter().all(|count| *count > 0));
        // Lists of later blocks are left, and blocks without a list are executed.
        assert!(whole > 0 || fork == Fork::Amsterdam);
    }
}
