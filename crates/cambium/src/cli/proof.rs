//! Proofs and witnesses: built from a database, verified without one.

use super::{
    args::{ProveArgs, RulesArgs, StatelessArgs, VerifyArgs, WitnessArgs},
    chain::balance,
    error::Failure,
    history, open,
    output::{Output, Report, Table, count},
};
use cambium::{
    AccountProof, Address, BlockWitness, Bytes, ChainSpec, Genesis, GenesisError, HistoryView,
    NoResolve, ProofTargets, StatelessReport, StatelessRules, StorageKey, keccak256,
    verify_account_proof,
};
use serde_json::{Value, json, value::RawValue};
use std::{
    fs,
    io::{self, Read},
    path::Path,
};

pub(crate) fn prove(args: &ProveArgs, out: &Output) -> Result<Report, Failure> {
    let db = open::db_to_read(&args.state.db, out)?;
    let view = history::proving_view(&args.state.db, &db, args.state.block, out)?;
    let proof = account_proof(&view, args.address, &args.slots)?;
    let (block, root) = (view.block(), view.state_root()?);
    out.note(format_args!("the state root of block {block} is {root}"));
    Ok(Report::of_json(json!(proof)))
}

pub(crate) fn account_proof(
    view: &HistoryView,
    address: Address,
    slots: &[StorageKey],
) -> Result<AccountProof, Failure> {
    let paths = slots.iter().map(|key| keccak256(key.slot)).collect();
    let keys = ProofTargets::new(vec![(keccak256(address), paths)]);
    // The extracted trie has all nodes of the proof, so there is nothing to resolve.
    let mut trie = view.extract(&keys)?;
    trie.prove_account(address, slots, &mut NoResolve)
        .map_err(|error| {
            let error = match error {
                cambium::UpdateError::Trie(error) => error,
                cambium::UpdateError::Resolve(missing) => {
                    cambium::TrieError::NoNode { path: missing.path }
                }
            };
            cambium::StateError::Trie(error).into()
        })
}

pub(crate) fn verify(args: &VerifyArgs) -> Result<Report, Failure> {
    let root = args.root;
    let proof: AccountProof = read_json(&args.proof, "account proof", |text| {
        serde_json::from_str(text)
    })?;
    let verified =
        verify_account_proof(root, &proof).map_err(|error| Failure::proof(root, error))?;
    let account = verified.account;
    let slots: Vec<Value> = verified
        .slots
        .iter()
        .map(|(slot, value)| json!({ "slot": slot, "value": value }))
        .collect();
    let fields = account.unwrap_or_default();
    let json = json!({
        "holds": true,
        "root": root,
        "address": proof.address,
        "exists": account.is_some(),
        "nonce": fields.nonce,
        "balance": fields.balance.to_string(),
        "code_hash": fields.code_hash,
        "storage_root": verified.storage_root,
        "slots": slots,
    });
    let mut table = Table::default()
        .row("state root", root)
        .row("address", proof.address);
    table = match account {
        None => table.row("account", "does not exist"),
        Some(account) => table
            .row("nonce", count(account.nonce))
            .row("balance", balance(account.balance))
            .row("code hash", account.code_hash)
            .row("storage root", verified.storage_root),
    };
    for (slot, value) in verified.slots {
        table = table.row(format!("slot {slot}"), format!("{value:#x} ({value})"));
    }
    Ok(Report::new(format!("The proof holds.\n{table}"), json))
}

pub(crate) fn witness(args: &WitnessArgs, out: &Output) -> Result<Report, Failure> {
    let chain = open::chain_to_read(&args.db, out)?;
    let witness = chain.witness_on(args.block, |parent| {
        let view = history::of_archive(&args.db, chain.db(), parent.number, out)?;
        match view.filter(|view| view.block() == parent) {
            Some(view) => Ok(view),
            None => Ok(chain.db().view_of(parent)?.into()),
        }
    })?;
    Ok(Report::of_json(witness.to_json(args.form.into())))
}

pub(crate) fn stateless(args: &StatelessArgs) -> Result<Report, Failure> {
    let block = args.block.as_deref().map(read_block).transpose()?;
    let witness = read_json(&args.witness, "witness", |text| {
        BlockWitness::from_json(text, block.clone())
    })?;
    let spec = fork_rules(&args.rules)?;
    let report = witness.execute(&StatelessRules {
        parent: args.parent,
        gas_limit_max: args.gas_limit_max,
        ..StatelessRules::of(&spec)
    })?;
    let json = json!({
        "holds": true,
        "number": report.id.number,
        "hash": report.id.hash,
        "parent": report.parent.hash,
        "parent_was_given": args.parent.is_some(),
        "chain_id": report.chain_id,
        "fork": format!("{:?}", report.fork),
        "pre_root": report.pre_root,
        "state_root": report.state_root,
        "transactions": report.transactions,
        "gas": report.gas_used,
        "receipts_checked": report.receipts_checked,
        "unused_nodes": report.unused_nodes,
    });
    let text = format!(
        "The block follows from its witness{}.\n{}",
        match args.parent {
            Some(_) => "",
            None => ", provided that its parent is a block of the chain: see --parent",
        },
        stateless_table(&report)
    );
    Ok(Report::new(text, json))
}

pub(crate) fn stateless_table(report: &StatelessReport) -> Table {
    let receipts = match report.receipts_checked {
        true => "checked",
        false => "not checked: before Byzantium a witness lacks nodes for them",
    };
    Table::default()
        .row("block", report.id)
        .row("parent", report.parent)
        .row(
            "rules",
            format!("{:?}, chain {}", report.fork, report.chain_id),
        )
        .row("transactions", count(report.transactions as u64))
        .row("gas", count(report.gas_used))
        .row("receipts", receipts)
        .row("root before", report.pre_root)
        .row("root after", report.state_root)
}

/// The fork rules that the arguments select.
fn fork_rules(args: &RulesArgs) -> Result<ChainSpec, Failure> {
    if let Some(path) = &args.genesis {
        let genesis = Genesis::stream(path, |_| Ok::<_, GenesisError>(()))?;
        genesis.check_rules()?;
        let file = genesis.file;
        return Ok(genesis.config.ok_or(GenesisError::NoConfig { file })?);
    }
    let named = ChainSpec::PUBLIC
        .iter()
        .find(|(name, _)| Some(*name) == args.chain.as_deref());
    // The argument parser rejects other names.
    Ok(named.map(|(_, rules)| rules()).unwrap_or_default())
}

/// Reads the RLP of a block: binary, hex, or in a response to `debug_getRawBlock`.
fn read_block(path: &Path) -> Result<Bytes, Failure> {
    let bytes = fs::read(path).map_err(Failure::io(path, "read"))?;
    let text = std::str::from_utf8(&bytes).map(str::trim).unwrap_or("");
    if let Ok(response) = serde_json::from_str::<Response<Bytes>>(text) {
        return Ok(response.result);
    }
    // The RLP of a list does not start with a letter or digit.
    match text.parse::<Bytes>() {
        Ok(rlp) if !rlp.is_empty() => Ok(rlp),
        _ => Ok(bytes.into()),
    }
}

/// Reads a file, or standard input for `-`. Returns its name and text.
fn read_text(path: &Path, what: &'static str) -> Result<(String, String), Failure> {
    let mut text = String::new();
    let (file, read) = if path == Path::new("-") {
        let read = io::stdin().lock().read_to_string(&mut text).map(|_| ());
        ("standard input".to_owned(), read)
    } else {
        let read = fs::read_to_string(path).map(|read| text = read);
        (path.display().to_string(), read)
    };
    match read {
        // Bytes that are not UTF-8 are not JSON.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            let error = serde::de::Error::custom(error);
            return Err(Failure::no_json(file, what)(error));
        }
        read => read.map_err(Failure::io(Path::new(&file), "read"))?,
    }
    Ok((file, text))
}

/// Reads JSON from a file, or from standard input for `-`. Of a JSON-RPC response the `result` is
/// read; lines and columns in errors then refer to it.
pub(crate) fn read_json<T>(
    path: &Path,
    what: &'static str,
    read: impl Fn(&str) -> Result<T, serde_json::Error>,
) -> Result<T, Failure> {
    let (file, text) = read_text(path, what)?;
    let error = match read(&text) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    match serde_json::from_str::<Response<Box<RawValue>>>(&text) {
        Ok(response) => {
            let file = format!("{file}, in its `result`");
            read(response.result.get()).map_err(Failure::no_json(file, what))
        }
        Err(_) => Err(Failure::no_json(file, what)(error)),
    }
}

/// A JSON-RPC response.
#[derive(serde::Deserialize)]
struct Response<T> {
    result: T,
}
