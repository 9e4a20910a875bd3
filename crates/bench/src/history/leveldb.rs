//! LevelDB with all nodes of all states by their hashes, as geth's hash scheme keeps them in an archive:
//! the RLP of a node under its Keccak-256.

use super::{
    lists::{next_list, put_list},
    made::Made,
    plan::{Failure, Plan, make_empty, path},
    states::{Found, OldStates},
};
use crate::system;
use alloy_primitives::{B256, Bytes, keccak256};
use alloy_rlp::Header;
use cambium_primitives::Path as NodePath;
use serde_json::{Map, Value, json};
use std::{
    ffi::{CStr, CString, c_char, c_int, c_uchar, c_void},
    fs::{self, File},
    io::{self, BufReader, BufWriter, Write as _},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    ptr, slice,
    sync::{Mutex, Once},
    time::{Duration, Instant},
};

/// Makes the database of a plan, and then that of LevelDB from the nodes of each block, which are kept in
/// a file until the writing is measured. Returns figures of it.
pub(super) fn make(plan: &Plan) -> Result<(Made, Map<String, Value>), Failure> {
    let kept = plan.dir.join("nodes");
    let mut file = BufWriter::new(File::create(&kept)?);
    let made = plan.make(Some(&mut |nodes| put_list(&mut file, &nodes)))?;
    file.flush()?;
    let mut file = BufReader::new(File::open(&kept)?);
    let leveldb = LevelDb::create(plan)?;
    for _ in 0..plan.first_parts() {
        leveldb.put(&next_list(&mut file)?)?;
    }
    // Closing waits for what is merged at that moment.
    drop(leveldb);
    let first_bytes = system::disk_bytes(&dir_of(plan))?;
    let leveldb = LevelDb::open(plan)?;
    let (mut writing, mut slowest, mut bytes) = (Duration::ZERO, Duration::ZERO, 0);
    for _ in 0..plan.blocks {
        let nodes = next_list(&mut file)?;
        let elapsed = leveldb.put(&nodes)?;
        bytes += nodes.iter().map(|node| node.len() + 32).sum::<usize>();
        writing += elapsed;
        slowest = slowest.max(elapsed);
    }
    let start = Instant::now();
    drop(leveldb);
    writing += start.elapsed();
    io::copy(&mut file, &mut File::create(plan.imported_nodes_file())?)?;
    fs::remove_file(&kept)?;
    let changes: usize = plan.changed_accounts().map(|indices| indices.len()).sum();
    let changes = changes.max(1) as f64;
    let on_disk = system::disk_bytes(&dir_of(plan))?.saturating_sub(first_bytes);
    let figures = json!({
        "bytes_per_change": on_disk as f64 / changes,
        "node_bytes_per_change": bytes as f64 / changes,
        "build_seconds": writing.as_secs_f64(),
        "build_us_per_change": 1e6 * writing.as_secs_f64() / changes,
        "slowest_write_ms": 1e3 * slowest.as_secs_f64(),
    });
    Ok((made, figures.as_object().cloned().unwrap_or_default()))
}

/// Bits of a key in the filters, as geth has them.
const FILTER_BITS: c_int = 10;
/// Share of the memory for blocks that were read, and for writes; the rest is left to filters, indices,
/// and the page cache. geth gives half of its cache to blocks, and a quarter to writes.
const CACHE_DIVISOR: u64 = 4;
const WRITE_BUFFER_DIVISOR: u64 = 8;
/// Files that it keeps open, with their indices and filters.
const OPEN_FILES: c_int = 4_096;
/// Hashes can't be compressed.
const NO_COMPRESSION: c_int = 0;

/// The part of LevelDB's interface for C (leveldb/c.h) that is needed here.
#[expect(unsafe_code, reason = "LevelDB has no other interface")]
mod sys {
    use std::ffi::{c_char, c_int, c_uchar, c_void};

    // Linked statically for the sake of `limit_maps`, which the shared library does not export.
    #[link(name = "leveldb", kind = "static")]
    #[link(name = "snappy")]
    #[link(name = "stdc++")]
    unsafe extern "C" {
        /// `leveldb::EnvPosixTestHelper::SetReadOnlyMMapLimit`.
        #[link_name = "_ZN7leveldb18EnvPosixTestHelper20SetReadOnlyMMapLimitEi"]
        pub(super) safe fn limit_maps(files: c_int);
        pub(super) fn leveldb_open(
            options: *const c_void,
            name: *const c_char,
            error: *mut *mut c_char,
        ) -> *mut c_void;
        pub(super) fn leveldb_close(db: *mut c_void);
        pub(super) fn leveldb_write(
            db: *mut c_void,
            options: *const c_void,
            batch: *mut c_void,
            error: *mut *mut c_char,
        );
        pub(super) fn leveldb_get(
            db: *mut c_void,
            options: *const c_void,
            key: *const c_char,
            key_len: usize,
            value_len: *mut usize,
            error: *mut *mut c_char,
        ) -> *mut c_char;
        pub(super) fn leveldb_free(bytes: *mut c_void);
        pub(super) fn leveldb_writebatch_create() -> *mut c_void;
        pub(super) fn leveldb_writebatch_destroy(batch: *mut c_void);
        pub(super) fn leveldb_writebatch_put(
            batch: *mut c_void,
            key: *const c_char,
            key_len: usize,
            value: *const c_char,
            value_len: usize,
        );
        pub(super) fn leveldb_options_create() -> *mut c_void;
        pub(super) fn leveldb_options_destroy(options: *mut c_void);
        pub(super) fn leveldb_options_set_filter_policy(options: *mut c_void, filter: *mut c_void);
        pub(super) fn leveldb_options_set_create_if_missing(options: *mut c_void, value: c_uchar);
        pub(super) fn leveldb_options_set_write_buffer_size(options: *mut c_void, bytes: usize);
        pub(super) fn leveldb_options_set_max_open_files(options: *mut c_void, files: c_int);
        pub(super) fn leveldb_options_set_cache(options: *mut c_void, cache: *mut c_void);
        pub(super) fn leveldb_options_set_compression(options: *mut c_void, compression: c_int);
        pub(super) fn leveldb_filterpolicy_create_bloom(bits: c_int) -> *mut c_void;
        pub(super) fn leveldb_filterpolicy_destroy(filter: *mut c_void);
        pub(super) fn leveldb_readoptions_create() -> *mut c_void;
        pub(super) fn leveldb_readoptions_destroy(options: *mut c_void);
        pub(super) fn leveldb_writeoptions_create() -> *mut c_void;
        pub(super) fn leveldb_writeoptions_destroy(options: *mut c_void);
        pub(super) fn leveldb_writeoptions_set_sync(options: *mut c_void, value: c_uchar);
        pub(super) fn leveldb_cache_create_lru(bytes: usize) -> *mut c_void;
        pub(super) fn leveldb_cache_destroy(cache: *mut c_void);
    }
}

/// Where a plan's nodes are.
pub(super) fn dir_of(plan: &Plan) -> PathBuf {
    plan.dir.join("leveldb")
}

/// The limit of maps is set before the first database is opened.
static MAPS: Once = Once::new();

/// An open LevelDB.
pub(super) struct LevelDb {
    db: *mut c_void,
    options: *mut c_void,
    filter: *mut c_void,
    cache: *mut c_void,
    read: *mut c_void,
    write: *mut c_void,
    /// The nodes of blocks to import, once they are asked for.
    to_import: Mutex<Option<BufReader<File>>>,
    imported_nodes_file: PathBuf,
}

// SAFETY: LevelDB's handles may be used by any number of threads at a time; the pointers are not changed
// after `open`.
#[expect(unsafe_code, reason = "LevelDB has no other interface")]
unsafe impl Sync for LevelDb {}

#[expect(unsafe_code, reason = "LevelDB has no other interface")]
impl LevelDb {
    /// Opens the database of a plan, or creates it.
    pub(super) fn open(plan: &Plan) -> Result<Self, Failure> {
        Self::open_in(
            &dir_of(plan),
            plan.process_memory,
            plan.imported_nodes_file(),
        )
    }

    /// Creates the database of a plan anew.
    pub(super) fn create(plan: &Plan) -> Result<Self, Failure> {
        make_empty(&dir_of(plan))?;
        Self::open(plan)
    }

    fn open_in(dir: &Path, memory: u64, imported_nodes_file: PathBuf) -> Result<Self, Failure> {
        let name = CString::new(dir.as_os_str().as_bytes())?;
        // With maps each read of a page brings those around it, 128 KiB at least. geth's LevelDB has none.
        MAPS.call_once(|| sys::limit_maps(0));
        let mut error = ptr::null_mut();
        // SAFETY: every handle is created here, and destroyed in `drop`; `name` ends in a zero byte and
        // outlives the call.
        unsafe {
            let options = sys::leveldb_options_create();
            let filter = sys::leveldb_filterpolicy_create_bloom(FILTER_BITS);
            let cache = sys::leveldb_cache_create_lru((memory / CACHE_DIVISOR) as usize);
            sys::leveldb_options_set_create_if_missing(options, 1);
            sys::leveldb_options_set_filter_policy(options, filter);
            sys::leveldb_options_set_cache(options, cache);
            let buffer = (memory / WRITE_BUFFER_DIVISOR) as usize;
            sys::leveldb_options_set_write_buffer_size(options, buffer);
            sys::leveldb_options_set_max_open_files(options, OPEN_FILES);
            sys::leveldb_options_set_compression(options, NO_COMPRESSION);
            let opened = Self {
                db: sys::leveldb_open(options, name.as_ptr(), &mut error),
                options,
                filter,
                cache,
                read: sys::leveldb_readoptions_create(),
                write: sys::leveldb_writeoptions_create(),
                to_import: Mutex::default(),
                imported_nodes_file,
            };
            check(error)?;
            Ok(opened)
        }
    }

    /// Adds nodes in one batch, which is synced. Returns the time of writing.
    pub(super) fn put(&self, nodes: &[Bytes]) -> Result<Duration, Failure> {
        let hashes: Vec<_> = nodes.iter().map(keccak256).collect();
        let start = Instant::now();
        let mut error = ptr::null_mut();
        // SAFETY: the batch is created and destroyed here; LevelDB copies keys and values.
        unsafe {
            let batch = sys::leveldb_writebatch_create();
            for (hash, node) in hashes.iter().zip(nodes) {
                let (key, value) = (hash.as_ptr().cast(), node.as_ptr().cast());
                sys::leveldb_writebatch_put(batch, key, hash.len(), value, node.len());
            }
            sys::leveldb_writeoptions_set_sync(self.write, 1);
            sys::leveldb_write(self.db, self.write, batch, &mut error);
            sys::leveldb_writebatch_destroy(batch);
        }
        check(error)?;
        Ok(start.elapsed())
    }

    /// The node with a hash.
    fn node(&self, hash: &B256) -> Result<Vec<u8>, Failure> {
        let (mut len, mut error) = (0, ptr::null_mut());
        // SAFETY: the value is LevelDB's until it is freed, which happens here after it was copied.
        unsafe {
            let key = hash.as_ptr().cast();
            let value = sys::leveldb_get(self.db, self.read, key, hash.len(), &mut len, &mut error);
            check(error)?;
            if value.is_null() {
                return Err(format!("there is no node {hash}").into());
            }
            let node = slice::from_raw_parts(value.cast::<c_uchar>(), len).to_vec();
            sys::leveldb_free(value.cast());
            Ok(node)
        }
    }
}

#[expect(unsafe_code, reason = "LevelDB has no other interface")]
impl Drop for LevelDb {
    fn drop(&mut self) {
        // SAFETY: nothing uses the handles any more; the database goes before what it uses.
        unsafe {
            if !self.db.is_null() {
                sys::leveldb_close(self.db);
            }
            sys::leveldb_readoptions_destroy(self.read);
            sys::leveldb_writeoptions_destroy(self.write);
            sys::leveldb_options_destroy(self.options);
            sys::leveldb_cache_destroy(self.cache);
            sys::leveldb_filterpolicy_destroy(self.filter);
        }
    }
}

/// The error that LevelDB has returned, if any.
#[expect(unsafe_code, reason = "LevelDB has no other interface")]
fn check(error: *mut c_char) -> Result<(), Failure> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: it is a string of LevelDB's, which ends in a zero byte, and is freed here.
    let text = unsafe {
        let text = CStr::from_ptr(error).to_string_lossy().into_owned();
        sys::leveldb_free(error.cast());
        text
    };
    Err(text.into())
}

impl OldStates for LevelDb {
    fn import(&self, _: &[u64]) -> Result<(), Failure> {
        let mut file = self.to_import.lock().map_err(|error| error.to_string())?;
        let file = match &mut *file {
            Some(file) => file,
            none => none.insert(BufReader::new(File::open(&self.imported_nodes_file)?)),
        };
        self.put(&next_list(file)?)?;
        Ok(())
    }

    fn read(&self, index: u64, _: u64, root: B256) -> Result<Found, Failure> {
        let path = NodePath::account(&path(index));
        let (mut depth, mut nodes, mut hash) = (0, 0, root);
        loop {
            let node = self.node(&hash)?;
            nodes += 1;
            let items = items_of(&node)?;
            let child = match items[..] {
                [own, child] => {
                    let nibbles = 2 * own.len() - if own[0] & 0x10 == 0 { 2 } else { 1 };
                    depth += nibbles;
                    if own[0] & 0x20 != 0 {
                        let account = items_of(child)?;
                        let nonce = account[0].iter();
                        let nonce = nonce.fold(0, |nonce, byte| nonce << 8 | u64::from(*byte));
                        return Ok(Found {
                            nonce: Some(nonce),
                            root: Some(root),
                            nodes,
                        });
                    }
                    child
                }
                _ => {
                    depth += 1;
                    items[usize::from(path.nibble(depth - 1))]
                }
            };
            hash = B256::try_from(child)?;
        }
    }
}

/// The items of a list, each without its header.
fn items_of(node: &[u8]) -> Result<Vec<&[u8]>, Failure> {
    let mut rest = node;
    let mut list = Header::decode_bytes(&mut rest, true)?;
    let mut items = Vec::with_capacity(17);
    while !list.is_empty() {
        items.push(Header::decode_bytes(&mut list, false)?);
    }
    Ok(items)
}
