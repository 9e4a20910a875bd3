//! The demo command: generates a chain, imports it, and proves and re-executes parts of it, with an
//! explanation of each step.

use super::{
    args::workload::DemoArgs,
    error::{Failure, WITNESS},
    files::Unfinished,
    import,
    output::{Output, Report, Table, bytes, count, quantity},
    proof::stateless_table,
    signals::Stop,
    workload::{Generated, How, generate},
};
use alloy_primitives::utils::format_ether;
use cambium::{
    AccountProof, B256, BlockId, BlockWitness, Chain, Options, StateAt, StdDisk, StorageKey, U256,
    chain::ImportSummary,
    proof::{StatelessRules, WitnessForm},
    verify_account_proof,
};
use cambium_workload::{TOKEN, Workload, WorkloadParams, token_balance_slot};
use serde_json::{Value, json};
use std::{env, path::Path, slice, sync::Arc};

pub(crate) fn demo(args: &DemoArgs, out: &Output) -> Result<Report, Failure> {
    match &args.dir {
        Some(dir) => run(args, dir, out),
        None => {
            let mut unfinished = Unfinished::on_signals(out);
            let temporary = unfinished.make_scratch("cambium-demo-", &env::temp_dir())?;
            run(args, temporary.path(), out)
        }
    }
}

fn run(args: &DemoArgs, dir: &Path, out: &Output) -> Result<Report, Failure> {
    let db = dir.join("db");
    if db.exists() {
        return Err(Failure::DemoExists(db));
    }
    out.say("Cambium stores the state of an EVM blockchain. This demonstration has five steps.\n")?;
    let (workload, made) = make_chain(args, dir, out)?;
    let (chain, summary) = import_chain(&made, &db, out)?;
    let imported = import::json(&summary, &chain);
    let proof = prove_balances(&workload, &chain, out)?;
    let witness = execute_from_witness(&chain, made.head, out)?;
    let check = merge_and_check(chain, &db, summary.state_root, out)?;
    out.say(what_next(args, dir))?;
    Ok(Report::new(
        String::new(),
        json!({ "import": imported, "proof": proof, "witness": witness, "check": check }),
    ))
}

/// Step 1.
fn make_chain(args: &DemoArgs, dir: &Path, out: &Output) -> Result<(Workload, Generated), Failure> {
    out.say(
        "1. Generate a chain of signed payments and token transfers that any client can import.",
    )?;
    let params = WorkloadParams {
        accounts: args.accounts,
        blocks: args.blocks,
        ..WorkloadParams::default()
    };
    let workload = Workload::new(params)?;
    let how = How {
        memory_bytes: Options::default().memory_bytes,
        force: false,
        access_lists: false,
        merge_interval: None,
    };
    let made = generate(&workload, dir, how, out)?;
    let size = |file: &Path| bytes(file.metadata().map_or(0, |metadata| metadata.len()));
    let table = Table::default()
        .row("accounts", count(workload.genesis().accounts))
        .row("blocks", count(args.blocks))
        .row("transactions", count(made.transactions))
        .row("genesis file", size(&made.genesis))
        .row("chain file", size(&made.chain));
    out.say(format_args!("{table}\n"))?;
    Ok((workload, made))
}

/// Step 2.
fn import_chain(
    made: &Generated,
    db: &Path,
    out: &Output,
) -> Result<(Chain, ImportSummary), Failure> {
    out.say(
        "2. Import it into a new database: every block is executed, and its gas, receipts and\n   \
         state root are verified against its header, before it is made durable.",
    )?;
    let disk = Arc::new(StdDisk::new(db));
    let chain = Chain::init(disk, &made.genesis, Options::default(), &mut |_| {})?;
    let summary = import::import_files(
        &chain,
        slice::from_ref(&made.chain),
        import::Beside::Nothing,
        &Stop::default(),
        &mut |_| {},
        out,
    )?;
    out.say(format_args!("{}\n", import::text(&summary, &chain)))?;
    if summary.done.head != made.head {
        return Err(Failure::Demo("the head is not that of the generated chain"));
    }
    Ok((chain, summary))
}

/// Step 3.
fn prove_balances(workload: &Workload, chain: &Chain, out: &Output) -> Result<Value, Failure> {
    out.say("3. Prove a sender's balances against the state root.")?;
    let (address, view) = (workload.address(0), StateAt::from(chain.db().view()?));
    let token_slot = StorageKey::from(token_balance_slot(&address));
    let tokens = view.prove_account(TOKEN, &[token_slot])?;
    let ether = view.prove_account(address, &[])?;
    let root = view.state_root()?;
    let verify = |proof| {
        let verified = verify_account_proof(root, proof);
        verified.map_err(|error| Failure::proof(root, error))
    };
    let account = verify(&ether)?.account.unwrap_or_default();
    let slots = verify(&tokens)?.slots;
    let token_units = slots.first().map_or(U256::ZERO, |(_, value)| *value);
    let proved = |amount, proof| format!("{} (proved by {})", format_ether(amount), nodes(proof));
    let table = Table::default()
        .row("account", address)
        .row("ether", proved(account.balance, &ether))
        .row("tokens", proved(token_units, &tokens));
    out.say(table)?;
    let mut forged = ether;
    forged.balance += U256::from(1);
    match verify_account_proof(root, &forged) {
        Ok(_) => return Err(Failure::Demo("a forged proof was accepted")),
        Err(error) => out.say(format_args!(
            "   With one wei more in the proof it is rejected: {error}.\n"
        ))?,
    }
    Ok(json!({ "root": root, "address": address, "balance": account.balance }))
}

fn nodes(proof: &AccountProof) -> String {
    let storage = proof.storage_proof.iter().flat_map(|slot| &slot.proof);
    let nodes: Vec<_> = proof.account_proof.iter().chain(storage).collect();
    let size = nodes.iter().map(|node| node.len() as u64).sum();
    format!("{} trie nodes, {}", nodes.len(), bytes(size))
}

/// Step 4.
fn execute_from_witness(chain: &Chain, head: BlockId, out: &Output) -> Result<Value, Failure> {
    out.say("4. Execute the last block again from its witness, without the database.")?;
    let witness = chain.witness(head.number)?;
    let json = witness.to_json(WitnessForm::Own).to_string();
    let witness =
        BlockWitness::from_json(&json, None).map_err(Failure::no_json("memory".into(), WITNESS))?;
    let parent = chain.block(head.number - 1)?.header.hash_slow();
    let report = witness.execute(&StatelessRules {
        parent: Some(parent),
        ..StatelessRules::of(chain.spec())
    })?;
    let table = stateless_table(&report).row(
        "witness",
        format!(
            "{} trie nodes, {} codes, {} as JSON",
            count(witness.witness.state.len() as u64),
            witness.witness.codes.len(),
            bytes(json.len() as u64),
        ),
    );
    out.say(format_args!("{table}\n"))?;
    Ok(json!({ "block": quantity(report.id.number), "json_bytes": json.len() }))
}

/// Step 5. Closes the database and opens it again.
fn merge_and_check(
    chain: Chain,
    db: &Path,
    state_root: B256,
    out: &Output,
) -> Result<Value, Failure> {
    out.say(
        "5. Merge all blocks into pages, reopen the database, and hash the state from its leaves.",
    )?;
    chain.db().flush(0)?;
    drop(chain);
    let (chain, _) = Chain::open(Arc::new(StdDisk::new(db)), Options::default())?;
    let check = chain.db().check(&mut |_| {})?;
    if !check.damage.is_empty() || chain.db().view()?.state_root() != state_root {
        return Err(Failure::Demo("the database changed when it was reopened"));
    }
    let table = Table::default()
        .row("accounts", count(check.accounts))
        .row("slots", count(check.slots))
        .row("blocks", count(check.blocks))
        .row("state root", format!("{state_root}, as before"));
    out.say(format_args!("{table}\n"))?;
    Ok(json!({ "accounts": check.accounts, "slots": check.slots, "sound": true }))
}

fn what_next(args: &DemoArgs, dir: &Path) -> String {
    match &args.dir {
        Some(_) => format!(
            "All files are kept. Next, for example:\n  \
             cambium get {TOKEN} --datadir {db}\n  \
             cambium witness 1 --datadir {db}",
            db = dir.join("db").display()
        ),
        None => {
            "All files have been removed: use --dir DIR to keep them. See also `cambium --help`."
                .to_owned()
        }
    }
}
