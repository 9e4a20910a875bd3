//! Commands on a key-value store.

use super::{
    args::{
        database::DbArgs,
        kv::{
            KvCommand, KvDeleteArgs, KvGetArgs, KvInitArgs, KvListArgs, KvLoadArgs, KvProveArgs,
            KvPutArgs, KvRangeArgs, KvReadArgs, KvRollbackArgs, KvRootArgs, KvVerifyArgs,
            KvWriteArgs, commitment_named, parse_key, parse_value,
        },
    },
    error::{ENTRY_PROOF, Failure},
    files, open,
    output::{Output, Report, Table, count},
};
use cambium::{
    B256, Bytes,
    kv::{
        Commit, EntryProof, KeyRange, KvOptions, ProvedEntries, ProvedKeys, Store, Transaction,
        VALUE_BYTES_MAX, VerifyError, WriteBatch, verify, verify_range,
    },
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::io::{self, BufRead, Read};

/// Bytes of values after which a file of entries is committed, and a list ends: values may be long.
const BYTES_AT_ONCE: usize = 64 << 20;

pub(crate) fn run(command: &KvCommand, out: &Output) -> Result<Report, Failure> {
    match command {
        KvCommand::Init(args) => init(args),
        KvCommand::Get(args) => get(args, out),
        KvCommand::Put(args) => put(args, out),
        KvCommand::Delete(args) => delete(args, out),
        KvCommand::List(args) => list(args, out),
        KvCommand::Prove(args) => prove(args, out),
        KvCommand::Verify(args) => verify_proof(args),
        KvCommand::Root(args) => root(args, out),
        KvCommand::Rollback(args) => roll_back(args, out),
        KvCommand::Load(args) => load(args, out),
    }
}

/// A proof of values, or of a range if it has ends.
#[derive(Serialize, Deserialize)]
struct JsonProof {
    /// Name of the commitment under which the root is.
    commitment: String,
    /// First and last key of the range that is proved; absent for keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    first: Option<B256>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last: Option<B256>,
    entries: Vec<JsonEntry>,
    proof: Bytes,
    #[serde(flatten)]
    beside: Beside,
}

/// Optional fields beside a proof that it does not cover.
#[derive(Serialize, Deserialize)]
struct Beside {
    /// Number of the commit with the root.
    number: Option<u64>,
    root: Option<B256>,
    /// The first key beyond a range that has an entry.
    next: Option<B256>,
}

/// An entry, or a key without one.
#[derive(Clone, Serialize, Deserialize)]
struct JsonEntry {
    key: B256,
    value: Option<Bytes>,
}

impl JsonEntry {
    fn list(entries: impl IntoIterator<Item = (B256, Option<Bytes>)>) -> Vec<Self> {
        let entry = |(key, value)| Self { key, value };
        entries.into_iter().map(entry).collect()
    }
}

fn options(args: &DbArgs) -> KvOptions {
    let engine = open::options(args);
    KvOptions {
        memory_bytes: engine.memory_bytes,
        files: engine.files,
        ..KvOptions::default()
    }
}

fn open_to_write(args: &KvWriteArgs, out: &Output) -> Result<Store, Failure> {
    let options = KvOptions {
        keep_commits: args.keep_commits,
        ..options(&args.db)
    };
    Ok(noted(Store::open(existing(&args.db)?, options)?, out))
}

fn open_to_read(args: &DbArgs, out: &Output) -> Result<Store, Failure> {
    existing(args)?;
    let store = Store::open_read_only(open::disk_to_read(args)?, options(args))?;
    Ok(noted(store, out))
}

fn existing(args: &DbArgs) -> Result<std::sync::Arc<dyn cambium::Disk>, Failure> {
    match open::exists(args)? {
        true => open::existing(args),
        false => Err(Failure::NoStore(args.datadir.clone())),
    }
}

fn noted(store: Store, out: &Output) -> Store {
    for note in &store.recovery().notes {
        out.note(note);
    }
    store
}

/// A transaction at the commit that the arguments name.
fn begin(args: &KvReadArgs, out: &Output) -> Result<(Store, Transaction), Failure> {
    let store = open_to_read(&args.db, out)?;
    let number = match args.root {
        Some(root) => Some(store.commit_with_root(root)?.number()),
        None => args.commit,
    };
    let transaction = match number {
        Some(number) => at_commit(&store, number)?,
        None => store.begin()?,
    };
    Ok((store, transaction))
}

/// A transaction at a commit.
fn at_commit(store: &Store, number: u64) -> Result<Transaction, Failure> {
    let newest = store.newest()?.number();
    match number > newest {
        true => Err(Failure::NoValue {
            why: format!("no commit {number}: the newest is {newest}"),
        }),
        false => Ok(store.begin_at(number)?),
    }
}

fn init(args: &KvInitArgs) -> Result<Report, Failure> {
    let options = KvOptions {
        commitment: args.commitment(),
        merge_interval_commits: args.merge_interval,
        ..options(&args.db)
    };
    if !open::exists(&args.db)? {
        open::refuse_other_things(&args.db.datadir)?;
        files::make_directory(&args.db.datadir)?;
    }
    let store = Store::create(open::disk(&args.db.datadir), options)?;
    let commit = store.newest()?;
    let mut json = of_commit(&commit);
    json["commitment"] = json!(store.commitment().name().to_string());
    let mut table = table_of(&commit).row("commitment", store.commitment().name());
    if let Some(interval) = store.merge_interval() {
        json["merge_interval"] = json!(interval);
        table = table.row("merge interval", format!("{interval} commits"));
    }
    Ok(Report::new(format!("Created a store.\n{table}"), json))
}

fn get(args: &KvGetArgs, out: &Output) -> Result<Report, Failure> {
    let (_store, transaction) = begin(&args.at, out)?;
    let values = transaction.get_many(&args.keys)?;
    let entries = JsonEntry::list(args.keys.iter().copied().zip(values));
    let text = match &entries[..] {
        [one] => one.value.as_ref().map_or("(none)".to_owned(), text_of),
        _ => lines(&entries),
    };
    let mut json = of_commit(&transaction.snapshot());
    json["entries"] = json!(entries);
    Ok(Report::new(text, json))
}

fn put(args: &KvPutArgs, out: &Output) -> Result<Report, Failure> {
    let mut batch = WriteBatch::new();
    let bad = |why| Failure::BadEntry { why };
    let mut has_standard = false;
    for pair in args.entries.chunks(2) {
        let [key, value] = pair else {
            let why = format!("the key {} has no value: give pairs of both", pair[0]);
            return Err(bad(why));
        };
        let key = parse_key(key).map_err(bad)?;
        if value == "@-" && std::mem::replace(&mut has_standard, true) {
            return Err(bad(
                "@- stands for one value alone: standard input".to_owned()
            ));
        }
        let value = parse_value(value).map_err(|why| match value.starts_with('@') {
            true => Failure::NoValue { why },
            false => bad(why),
        })?;
        batch.put(key, value)?;
    }
    write(&args.store, batch, out)
}

fn delete(args: &KvDeleteArgs, out: &Output) -> Result<Report, Failure> {
    let mut batch = WriteBatch::new();
    for key in &args.keys {
        batch.delete(*key);
    }
    write(&args.store, batch, out)
}

fn write(args: &KvWriteArgs, batch: WriteBatch, out: &Output) -> Result<Report, Failure> {
    let commit = open_to_write(args, out)?.write(batch)?;
    Ok(committed("Committed.", &commit))
}

fn list(args: &KvListArgs, out: &Output) -> Result<Report, Failure> {
    let range = range_of(&args.range)?;
    let (_store, transaction) = begin(&args.at, out)?;
    let mut found = transaction.range(range.from()..=range.through());
    let (mut entries, mut bytes) = (Vec::new(), 0);
    while entries.len() < args.range.limit().get()
        && bytes < BYTES_AT_ONCE
        && let Some(entry) = found.next()
    {
        let (key, value) = entry?;
        bytes += value.len();
        entries.push((key, Some(value)));
    }
    let next = found.next().transpose()?.map(|(key, _)| key);
    let entries = JsonEntry::list(entries);
    let mut text = lines(&entries);
    if let Some(next) = next {
        text += &format!("\nThere are more: go on with --from {next:#x}");
    }
    let mut json = of_commit(&transaction.snapshot());
    json["entries"] = json!(entries);
    json["next"] = json!(next);
    Ok(Report::new(text, json))
}

fn prove(args: &KvProveArgs, out: &Output) -> Result<Report, Failure> {
    let is_given = args.of.from.is_some() || args.of.to.is_some() || args.of.limit.is_some();
    if is_given && !args.range {
        return Err(Failure::BadEntry {
            why: "--from, --to and --limit say which range: give --range instead of keys"
                .to_owned(),
        });
    }
    let range = range_of(&args.of)?;
    let (store, transaction) = begin(&args.at, out)?;
    let commitment = store.commitment().name().to_string();
    let snapshot = transaction.snapshot();
    let beside = |next| Beside {
        number: Some(snapshot.number()),
        root: Some(snapshot.root),
        next,
    };
    let proof = if args.range {
        let proved = transaction.prove_range(range, args.of.limit())?;
        let entries = proved.entries.into_iter();
        JsonProof {
            commitment,
            first: Some(proved.range.from()),
            last: Some(proved.range.through()),
            entries: JsonEntry::list(entries.map(|(key, value)| (key, Some(value)))),
            proof: proved.proof.encode().into(),
            beside: beside(proved.next),
        }
    } else {
        let proved = transaction.prove(&args.keys)?;
        JsonProof {
            commitment,
            first: None,
            last: None,
            entries: JsonEntry::list(proved.values),
            proof: proved.proof.encode().into(),
            beside: beside(None),
        }
    };
    Ok(Report::of_json(json!(proof)))
}

fn verify_proof(args: &KvVerifyArgs) -> Result<Report, Failure> {
    let root = args.root;
    let given: JsonProof =
        files::read_json(&args.proof, ENTRY_PROOF, |text| serde_json::from_str(text))?;
    let fails = |why: String| Failure::BadEntries { root, why };
    let commitment = commitment_named(&given.commitment)
        .ok_or_else(|| fails(format!("the commitment {:?} is unknown", given.commitment)))?;
    let proof = EntryProof::decode(&given.proof).map_err(|error| fails(error.to_string()))?;
    let wrong = |error: VerifyError| {
        let error = Box::new(error);
        Failure::Entries { root, error }
    };
    let mut table = Table::default()
        .row("root", root)
        .row("commitment", commitment.name());
    let entries = given.entries.clone().into_iter();
    if given.first.is_some() != given.last.is_some() {
        let why = "it has one end of a range: it needs `first` and `last`, or neither";
        return Err(fails(why.to_owned()));
    }
    if given.first.is_none() && given.entries.is_empty() {
        return Err(fails("it names no key and no range".to_owned()));
    }
    let Beside {
        number,
        root: own,
        next: claimed_next,
    } = given.beside;
    if let Some(own) = own.filter(|own| *own != root) {
        return Err(fails(format!("it says that the root is {own}")));
    }
    if given.first.is_none() && claimed_next.is_some() {
        return Err(fails("it has a next key and is of no range".to_owned()));
    }
    let mut next = None;
    if let (Some(first), Some(last)) = (given.first, given.last) {
        let range = KeyRange::new(first, last)
            .ok_or_else(|| fails("its range ends before it begins".to_owned()))?;
        let absent = || fails("it lists a key without a value in a range".to_owned());
        let entries = entries.map(|entry| Some((entry.key, entry.value?)));
        let proved = ProvedEntries {
            range,
            entries: entries.collect::<Option<_>>().ok_or_else(absent)?,
            next: claimed_next,
            proof,
        };
        next = range.after();
        verify_range(root, commitment, &proved).map_err(wrong)?;
        let then = match next {
            None => "nothing: this was the last key".to_owned(),
            Some(next) => next.to_string(),
        };
        table = table
            .row("first key", first)
            .row("last key", last)
            .row("then comes", then);
    } else {
        let values = entries.map(|entry| (entry.key, entry.value)).collect();
        verify(root, commitment, &ProvedKeys { values, proof }).map_err(wrong)?;
    }
    let there = given.entries.iter().filter(|entry| entry.value.is_some());
    let there = there.count();
    let absent = given.entries.len() - there;
    let table = table
        .row("entries", count(there as u64))
        .row("absent keys", count(absent as u64));
    let json = json!({
        "holds": true,
        "root": root,
        "commitment": given.commitment,
        "first": given.first,
        "last": given.last,
        "entries": given.entries,
        "next": next,
        "not_covered": { "number": number, "next": claimed_next },
    });
    let text = format!("The proof holds.\n{table}\nIt does not cover number and next in the file.");
    Ok(Report::new(text, json))
}

fn root(args: &KvRootArgs, out: &Output) -> Result<Report, Failure> {
    let store = open_to_read(&args.db, out)?;
    let commit = match args.commit {
        Some(number) => at_commit(&store, number)?.snapshot(),
        None => store.newest()?,
    };
    Ok(Report::new(commit.root.to_string(), of_commit(&commit)))
}

fn roll_back(args: &KvRollbackArgs, out: &Output) -> Result<Report, Failure> {
    let commit = open_to_write(&args.store, out)?.roll_back(args.commits)?;
    Ok(committed("Rolled back.", &commit))
}

fn load(args: &KvLoadArgs, out: &Output) -> Result<Report, Failure> {
    let (name, reader) = files::lines(&args.file, "line of a key and a value")?;
    let store = open_to_write(&args.store, out)?;
    let (mut batch, mut lines, mut bytes) = (WriteBatch::new(), 0, 0);
    let (mut commits, mut entries, mut deleted) = (0u64, 0u64, 0u64);
    for (at, line) in (1..).zip(Lines(reader)) {
        let bad = |why: String| Failure::BadLine {
            file: name.clone(),
            line: at,
            why,
        };
        let line = line.map_err(|error| bad(error.to_string()))?;
        if line.is_empty() {
            continue;
        }
        match line.split_once(['\t', ' ']) {
            Some(("", _)) => {
                let why = "it begins with a space or a tab: a line has a key, a tab or a space, and a value";
                return Err(bad(why.to_owned()));
            }
            Some((key, value)) => {
                let key = parse_key(key).map_err(bad)?;
                if value == "@-" {
                    return Err(bad("@- can't stand in a file of entries".to_owned()));
                }
                let value = parse_value(value).map_err(bad)?;
                bytes += value.len();
                batch
                    .put(key, value)
                    .map_err(|error| bad(error.to_string()))?;
                entries += 1;
            }
            None => {
                batch.delete(parse_key(&line).map_err(bad)?);
                deleted += 1;
            }
        }
        lines += 1;
        if lines == args.batch.get() || bytes >= BYTES_AT_ONCE {
            store.write(std::mem::take(&mut batch))?;
            (lines, bytes, commits) = (0, 0, commits + 1);
        }
    }
    if !batch.is_empty() {
        store.write(batch)?;
        commits += 1;
    }
    let commit = store.newest()?;
    let mut json = of_commit(&commit);
    json["commits"] = json!(commits);
    json["entries"] = json!(entries);
    json["deleted"] = json!(deleted);
    let table = table_of(&commit)
        .row("commits", count(commits))
        .row("entries", count(entries))
        .row("deleted", count(deleted));
    Ok(Report::new(format!("Loaded.\n{table}"), json))
}

/// Most bytes of a line: a key, and the longest value as hexadecimal digits.
const LINE_BYTES_MAX: u64 = 2 * VALUE_BYTES_MAX as u64 + 256;

/// The lines of a reader, none of which takes more memory than the longest entry.
struct Lines(Box<dyn BufRead>);

impl Iterator for Lines {
    type Item = io::Result<String>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut line = String::new();
        let read = (&mut self.0).take(LINE_BYTES_MAX + 1).read_line(&mut line);
        match read {
            Ok(0) => None,
            Ok(read) if read as u64 > LINE_BYTES_MAX => {
                let why = format!("it has more than {LINE_BYTES_MAX} bytes, and so no entry");
                Some(Err(io::Error::other(why)))
            }
            Ok(_) => {
                let end = line.trim_end_matches('\n').len();
                line.truncate(end);
                if line.ends_with('\r') {
                    line.pop();
                }
                Some(Ok(line))
            }
            Err(error) => Some(Err(error)),
        }
    }
}

fn range_of(args: &KvRangeArgs) -> Result<KeyRange, Failure> {
    let first = args.from.unwrap_or(KeyRange::ALL.from());
    let last = args.to.unwrap_or(KeyRange::ALL.through());
    KeyRange::new(first, last).ok_or(Failure::EmptyRange { first, last })
}

fn of_commit(commit: &Commit) -> Value {
    json!({
        "number": commit.number(),
        "hash": commit.id.hash,
        "root": commit.root,
    })
}

fn table_of(commit: &Commit) -> Table {
    Table::default()
        .row("commit", commit.id)
        .row("root", commit.root)
}

fn committed(title: &str, commit: &Commit) -> Report {
    Report::new(format!("{title}\n{}", table_of(commit)), of_commit(commit))
}

/// One line for each key: the key and its value.
fn lines(entries: &[JsonEntry]) -> String {
    let line = |entry: &JsonEntry| {
        let value = entry.value.as_ref().map_or("(none)".to_owned(), text_of);
        format!("{:#x}  {value}", entry.key)
    };
    let lines: Vec<_> = entries.iter().map(line).collect();
    lines.join("\n")
}

/// A value as text, if it is printable and not mistaken for anything else; else as hexadecimal digits.
fn text_of(value: &Bytes) -> String {
    let is_plain = |text: &&str| {
        let is_special = text.starts_with("0x") || text.starts_with('@') || *text == "(none)";
        !is_special && !text.chars().any(char::is_control)
    };
    match std::str::from_utf8(value).ok().filter(is_plain) {
        Some(text) => text.to_owned(),
        None => value.to_string(),
    }
}
