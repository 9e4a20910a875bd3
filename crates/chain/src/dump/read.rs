//! Reading a state into a new database.

use super::write::VERSION;
use crate::{
    Block, Chain, ChainError, ChainSpec, FileError, InitOptions, InitProgress, InputFile, Progress,
    body::{validate_access_list, validate_body},
    files::unpacked,
    genesis::{BLOBS_MAX, Value, optional, required},
    json::{Fields, Object, brief_json_error, named, object},
    preimages::FirstPreimages,
};
use alloy_primitives::{Address, B256, Bytes, KECCAK256_EMPTY, U256, keccak256};
use alloy_rlp::Decodable;
use cambium_primitives::{AccessList, Account, BlockId};
use cambium_state::{Disk, Loader, StateError};
use cambium_trie::TrieError;
use serde::de::{DeserializeSeed, Error, MapAccess};
use std::{
    fmt::Display,
    io::{self, BufReader, Read},
    sync::Arc,
};

/// Maximum number of slots in a piece of an account.
const PART_SLOTS: usize = 1 << 16;
/// Largest number of bytes without a quotation mark: longer than the RLP of any block in hexadecimal digits. A
/// string of JSON is in memory as a whole.
const STRING_BYTES_MAX: usize = 64 << 20;
/// Number of accounts between progress reports.
const TELL_ACCOUNTS: u64 = 4096;

impl Chain {
    /// Makes a database of a state that [`Chain::dump_state`] has written, gzipped or not. Its first block is the block of
    /// the dump, and blocks after it can be imported.
    ///
    /// The block's ancestors are not in the dump: a block after it that asks for the hash of one
    /// (`BLOCKHASH`) gets zero, and its state root is not that of its header; one whose ommers descend from
    /// them is refused. Total difficulty and fork rules are trusted.
    ///
    /// # Errors
    ///
    /// [`FileError::BadFile`] if it is not such a dump, or if its state is not that of its block, and an error if the
    /// database can't be written or exists already.
    pub fn load_dump(
        disk: Arc<dyn Disk>,
        from: InputFile,
        options: impl Into<InitOptions>,
        progress: &mut dyn FnMut(InitProgress),
    ) -> Result<Self, ChainError> {
        let InputFile { name, file } = from;
        // The size is known for regular files only.
        let of = file.metadata().ok().filter(|file| file.is_file());
        let bytes = Progress::new(of.map_or(0, |file| file.len()));
        let bad = |what: String| FileError::BadFile {
            file: name.clone(),
            what,
        };
        let (loader, preimages) = options.into().begin(disk)?;
        let mut top = TopFields {
            loading: Loading {
                loader,
                preimages,
                progress,
                bytes: bytes.clone(),
                failure: None,
            },
            version: None,
            rules: None,
            number: None,
            hash: None,
            total_difficulty: None,
            block: None,
            access_list: None,
            has_alloc: false,
        };
        let source = ShortStrings {
            source: unpacked(file, &bytes).map_err(|source| FileError::Open {
                file: name.clone(),
                source,
            })?,
            len: 0,
        };
        let mut deserializer = serde_json::Deserializer::from_reader(BufReader::new(source));
        let parsed = Object(&mut top)
            .deserialize(&mut deserializer)
            .and_then(|is_object| {
                deserializer.end()?;
                is_object
                    .then_some(())
                    .ok_or_else(|| serde_json::Error::custom("null"))
            });
        if let Some(failure) = top.loading.failure {
            return Err(failure);
        }
        parsed.map_err(|error| bad(brief_json_error(error).to_string()))?;
        match top.version {
            Some(VERSION) => {}
            Some(other) => {
                return Err(bad(format!("a dump of form {other}: this is {VERSION}")).into());
            }
            None => {
                let what = "not a dump: `cambium init --genesis` takes genesis files";
                return Err(bad(what.to_owned()).into());
            }
        }
        let lacks = |field: &str| bad(format!("has no field `{field}`"));
        let spec = top.rules.ok_or_else(|| lacks("rules"))?;
        check_rules(&spec).map_err(|what| bad(format!("rules: {what}")))?;
        let block = top.block.ok_or_else(|| {
            bad(
                "has no field `block`: the block had left the log when the state was written"
                    .to_owned(),
            )
        })?;
        let total_difficulty = top
            .total_difficulty
            .ok_or_else(|| lacks("totalDifficulty"))?;
        if !top.has_alloc {
            return Err(lacks("alloc").into());
        }
        let block = decode_block(&spec, &block, total_difficulty)
            .map_err(|what| bad(format!("block: {what}")))?;
        let id = BlockId::new(block.header.number, block.header.hash_slow());
        for (field, is_same) in [
            (
                "number",
                top.number.is_none_or(|number| number == id.number),
            ),
            ("hash", top.hash.is_none_or(|hash| hash == id.hash)),
        ] {
            if !is_same {
                return Err(bad(format!("{field}: not that of the block, which is {id}")).into());
            }
        }
        let list = access_list(&block, top.access_list.as_ref())
            .map_err(|what| bad(format!("blockAccessList: {what}")))?;
        let Loading {
            loader,
            preimages,
            progress,
            ..
        } = top.loading;
        let loaded = loader
            .finish(&mut |built| progress(InitProgress::State(built)))
            .map_err(|error| match &error {
                StateError::Trie(TrieError::Unsorted { path }) => {
                    bad(format!("alloc has the key at path {path} twice")).into()
                }
                _ => ChainError::from(error),
            })?;
        let (root, expected) = (loaded.root(), block.header.state_root);
        if root != expected {
            return Err(bad(format!(
                "the state root of its accounts is {root}, that of its block {id} is {expected}"
            ))
            .into());
        }
        preimages.finish(id)?;
        Self::create_at(loaded, spec, &block, total_difficulty, list.as_ref())
    }
}

/// Refuses rules that no genesis file gives, with which nothing could be executed.
fn check_rules(spec: &ChainSpec) -> Result<(), String> {
    if let Some((later, earlier)) = spec.forks_out_of_order() {
        return Err(format!("{later} comes before {earlier}"));
    }
    let schedule = &spec.blob_schedule;
    let forks = [
        schedule.cancun,
        schedule.prague,
        schedule.osaka,
        schedule.amsterdam,
    ];
    for params in forks.iter().chain(&schedule.bpo).flatten() {
        let blobs = params.target_blob_count.max(params.max_blob_count);
        let fits = |number: u128| u64::try_from(number).is_ok();
        if blobs.max(params.max_blobs_per_tx) > BLOBS_MAX
            || params.update_fraction == 0
            || !fits(params.update_fraction)
            || !fits(params.min_blob_fee)
        {
            return Err("blob parameters out of range".to_owned());
        }
    }
    Ok(())
}

/// Decodes a block, and holds its body against its header.
fn decode_block(spec: &ChainSpec, rlp: &Bytes, total_difficulty: U256) -> Result<Block, String> {
    let mut rest = &rlp[..];
    let block = Block::decode(&mut rest).map_err(|error| error.to_string())?;
    if !rest.is_empty() {
        return Err(format!("{} bytes follow it", rest.len()));
    }
    let header = &block.header;
    let before = total_difficulty.saturating_sub(header.difficulty);
    let post_merge = spec.is_post_merge(header.number, before);
    validate_body(spec, &block, post_merge).map_err(|error| error.to_string())?;
    Ok(block)
}

/// Decodes the access list of a block, which there is if its header has the hash of one.
fn access_list(block: &Block, rlp: Option<&Bytes>) -> Result<Option<AccessList>, String> {
    match (block.header.block_access_list_hash, rlp) {
        (None, None) => Ok(None),
        (None, Some(_)) => Err("the header of the block has no hash of one".to_owned()),
        (Some(_), None) => Err("is missing".to_owned()),
        (Some(_), Some(rlp)) => {
            let list = validate_access_list(&block.header, block.body.transactions.len(), rlp);
            list.map(Some).map_err(|error| error.to_string())
        }
    }
}

/// Puts accounts into the new database.
struct Loading<'a> {
    loader: Loader,
    preimages: FirstPreimages,
    progress: &'a mut dyn FnMut(InitProgress),
    /// How far the file is read.
    bytes: Progress,
    /// The error that ended the reading.
    failure: Option<ChainError>,
}

impl Loading<'_> {
    fn put<D: Error>(
        &mut self,
        put: impl FnOnce(&mut Loader) -> Result<(), StateError>,
    ) -> Result<(), D> {
        put(&mut self.loader).map_err(|failure| self.stopped(failure.into()))
    }

    /// Adds preimages, if the database is to keep them.
    fn add<D: Error>(&mut self, address: Option<Address>, slot: Option<B256>) -> Result<(), D> {
        let added = self.preimages.add(address, slot);
        added.map_err(|failure| self.stopped(failure.into()))
    }

    fn stopped<D: Error>(&mut self, failure: ChainError) -> D {
        self.failure = Some(failure);
        D::custom("stopped")
    }

    /// Refuses a hash whose preimage the database would have to keep.
    fn refuse_hash<D: Error>(&self, hash: &B256) -> Result<(), D> {
        match self.preimages.are_wanted() {
            true => Err(D::custom(format_args!(
                "{hash} is a hash whose preimage is not known: load without preimages"
            ))),
            false => Ok(()),
        }
    }
}

struct TopFields<'a> {
    loading: Loading<'a>,
    version: Option<u64>,
    rules: Option<ChainSpec>,
    number: Option<u64>,
    hash: Option<B256>,
    total_difficulty: Option<U256>,
    block: Option<Bytes>,
    access_list: Option<Bytes>,
    has_alloc: bool,
}

impl<'de> Fields<'de> for TopFields<'_> {
    const EXPECTED: &'static str = "a dump of a state";

    fn take<M: MapAccess<'de>>(&mut self, key: &str, map: &mut M) -> Result<(), M::Error> {
        match key {
            "cambiumDump" => self.version = Some(required(map, key)?),
            "rules" => {
                let rules = map.next_value().map_err(|error| named(key, error))?;
                self.rules = Some(rules);
            }
            "number" => self.number = optional(map, key)?,
            "hash" => self.hash = optional(map, key)?,
            "totalDifficulty" => self.total_difficulty = optional(map, key)?,
            "block" => self.block = optional(map, key)?,
            "blockAccessList" => self.access_list = optional(map, key)?,
            "alloc" if self.has_alloc => return Err(M::Error::custom("a second `alloc`")),
            "alloc" => {
                let mut alloc = AllocFields(&mut self.loading);
                self.has_alloc = object(map, key, &mut alloc)?;
            }
            // A genesis file is then recognized by its missing fields.
            _ if self.version.is_none() => {
                map.next_value::<serde::de::IgnoredAny>()?;
            }
            other => return Err(unknown(other)),
        }
        Ok(())
    }
}

fn unknown<E: Error>(field: impl Display) -> E {
    E::custom(format_args!(
        "unknown field `{}`",
        crate::genesis::shown(&field.to_string())
    ))
}

struct AllocFields<'a, 'p>(&'a mut Loading<'p>);

impl<'de> Fields<'de> for AllocFields<'_, '_> {
    const EXPECTED: &'static str = "an object of accounts by address or by its hash";

    fn take<M: MapAccess<'de>>(&mut self, key: &str, map: &mut M) -> Result<(), M::Error> {
        let path = match (Address::from_text(key), key.parse()) {
            (Some(address), _) => {
                self.0.add(Some(address), None)?;
                keccak256(address)
            }
            (None, Ok(path)) => {
                self.0.refuse_hash(&path)?;
                path
            }
            (None, Err(_)) => {
                let key = crate::genesis::shown(key);
                return Err(M::Error::custom(format_args!(
                    "`{key}` is neither an address nor a hash of one"
                )));
            }
        };
        let mut fields = AccountFields {
            path,
            account: Account::default(),
            code: Bytes::new(),
            slots: Vec::new(),
            loading: self.0,
        };
        if !object(map, path, &mut fields)? {
            return Err(M::Error::custom(format_args!("{path}: null")));
        }
        let AccountFields {
            mut account,
            code,
            slots,
            ..
        } = fields;
        if !code.is_empty() {
            account.code_hash = keccak256(&code);
        }
        let done = self.0.loader.accounts() + 1;
        if done.is_multiple_of(TELL_ACCOUNTS) {
            let (done, of) = (self.0.bytes.bytes_read(), self.0.bytes.bytes_total());
            (self.0.progress)(InitProgress::Accounts { done, of });
        }
        self.0.put(|loader| {
            loader.account(path, &account, slots)?;
            match account.code_hash == KECCAK256_EMPTY {
                true => Ok(()),
                false => loader.code(account.code_hash, &code),
            }
        })
    }
}

struct AccountFields<'a, 'p> {
    path: B256,
    account: Account,
    code: Bytes,
    slots: Vec<(B256, U256)>,
    loading: &'a mut Loading<'p>,
}

impl<'de> Fields<'de> for AccountFields<'_, '_> {
    const EXPECTED: &'static str = "an account object";

    fn take<M: MapAccess<'de>>(&mut self, key: &str, map: &mut M) -> Result<(), M::Error> {
        match key {
            "balance" => self.account.balance = required(map, key)?,
            "nonce" => self.account.nonce = required(map, key)?,
            "code" => self.code = required(map, key)?,
            "storage" | "hashedStorage" => {
                let mut fields = StorageFields {
                    account: self.path,
                    is_hashed: key == "hashedStorage",
                    slots: &mut self.slots,
                    loading: self.loading,
                };
                object(map, key, &mut fields)?;
            }
            other => return Err(unknown(other)),
        }
        Ok(())
    }
}

struct StorageFields<'a, 'p> {
    account: B256,
    is_hashed: bool,
    slots: &'a mut Vec<(B256, U256)>,
    loading: &'a mut Loading<'p>,
}

impl<'de> Fields<'de> for StorageFields<'_, '_> {
    const EXPECTED: &'static str = "an object of values by slot";

    fn take<M: MapAccess<'de>>(&mut self, key: &str, map: &mut M) -> Result<(), M::Error> {
        let slot = match self.is_hashed {
            true => key.parse().ok(),
            false => B256::from_text(key),
        };
        let slot: B256 = slot.ok_or_else(|| {
            let key = crate::genesis::shown(key);
            M::Error::custom(format_args!("`{key}` is not a slot of 64 hex digits"))
        })?;
        let slot = match self.is_hashed {
            true => {
                self.loading.refuse_hash(&slot)?;
                slot
            }
            false => {
                self.loading.add(None, Some(slot))?;
                keccak256(slot)
            }
        };
        let value = required(map, slot)?;
        if self.slots.len() == PART_SLOTS {
            let (account, slots) = (self.account, std::mem::take(self.slots));
            self.loading.put(|loader| loader.slots(account, slots))?;
        }
        self.slots.push((slot, value));
        Ok(())
    }
}

/// Text whose strings are of limited length.
struct ShortStrings<R> {
    source: R,
    /// Bytes since the newest quotation mark.
    len: usize,
}

impl<R: Read> Read for ShortStrings<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(buf)?;
        let bytes = &buf[..read];
        let is_mark = |byte: &u8| *byte == b'"';
        let first = bytes.iter().position(is_mark).unwrap_or(read);
        if self.len + first > STRING_BYTES_MAX {
            let what = format!("a string of more than {} MiB", STRING_BYTES_MAX >> 20);
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        self.len = match bytes.iter().rposition(is_mark) {
            Some(last) => read - last - 1,
            None => self.len + read,
        };
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_without_end_are_refused_and_long_texts_of_short_ones_are_read() {
        let mut endless = ShortStrings {
            source: io::repeat(b'a'),
            len: 0,
        };
        let mut piece = vec![0; 1 << 20];
        let mut read = 0;
        let told = loop {
            match endless.read(&mut piece) {
                Ok(more) => read += more,
                Err(error) => break error.to_string(),
            }
        };
        assert_eq!(
            (read, &told[..]),
            (STRING_BYTES_MAX, "a string of more than 64 MiB")
        );
        // Quotation marks at the borders of pieces count, too.
        let mut many = ShortStrings {
            source: io::repeat(b'"'),
            len: STRING_BYTES_MAX,
        };
        assert_eq!(many.read(&mut piece).unwrap(), piece.len());
        assert_eq!(many.len, 0);
    }
}
