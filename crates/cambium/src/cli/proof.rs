//! Proofs and witnesses: built from a database, verified without one.

use super::{
    args::proof::{ProveArgs, RulesArgs, StatelessArgs, VerifyArgs, WitnessArgs, WitnessFormArg},
    error::{ACCOUNT_PROOF, Failure, WITNESS},
    files,
    layered_proof::{self, LayeredAccountProof},
    node,
    output::{Output, Report, Table, count, quantity},
    proved,
};
use cambium::{
    AccountProof, BlockWitness, ChainSpec, Genesis, StateError,
    chain::GenesisError,
    proof::{StatelessReport, StatelessRules, Strictness},
    verify_account_proof,
};
use serde_json::json;
use std::{io::BufReader, path::PathBuf};

pub(crate) fn prove(args: &ProveArgs, out: &Output) -> Result<Report, Failure> {
    let node = node::of_accounts(&args.state.db, out)?;
    let view = node.provable_state_at(args.state.block)?;
    if node.db().merge_interval().is_some() {
        return layered_proof::prove(args, &view, out);
    }
    let proof = view.prove_account(args.address, &args.slots)?;
    let (block, root) = (view.block(), view.state_root()?);
    out.note(format_args!("the state root of block {block} is {root}"));
    Ok(Report::of_json(json!(proof)))
}

pub(crate) fn verify(args: &VerifyArgs) -> Result<Report, Failure> {
    let root = args.root;
    let proof = files::read_json(
        &args.proof,
        ACCOUNT_PROOF,
        |text| match serde_json::from_str::<Kind>(text)?.commitment {
            None => serde_json::from_str(text).map(AnyProof::Mpt),
            Some(_) => serde_json::from_str(text).map(AnyProof::Layered),
        },
    )?;
    let proof = match proof {
        AnyProof::Mpt(proof) => proof,
        AnyProof::Layered(proof) => return layered_proof::verify(&proof, root),
    };
    let verified =
        verify_account_proof(root, &proof).map_err(|error| Failure::proof(root, error))?;
    let storage_root = [("storage_root", verified.storage_root)];
    let (account, slots) = (verified.account, &verified.slots);
    Ok(proved::report(
        root,
        proof.address,
        account,
        slots,
        &storage_root,
    ))
}

/// An account proof of any commitment.
enum AnyProof {
    Mpt(AccountProof),
    Layered(Box<LayeredAccountProof>),
}

/// Commitment in the JSON of a proof: absent in the form of `eth_getProof`.
#[derive(serde::Deserialize)]
struct Kind {
    commitment: Option<serde::de::IgnoredAny>,
}

pub(crate) fn witness(args: &WitnessArgs, out: &Output) -> Result<Report, Failure> {
    let node = node::of_chain(&args.db, out)?;
    if node.db().merge_interval().is_some() && args.form != WitnessFormArg::Own {
        let what = "a witness under the commitment `layered` has Cambium's own form alone";
        return Err(StateError::BadOptions(what.to_owned()).into());
    }
    let witness = node.witness(args.block)?;
    Ok(Report::of_json(witness.to_json(args.form.into())))
}

pub(crate) fn stateless(args: &StatelessArgs) -> Result<Report, Failure> {
    let given = [
        Some(&args.witness),
        args.block.as_ref(),
        args.rules.genesis.as_ref(),
    ];
    files::refuse_two_standard(given.into_iter().flatten().map(PathBuf::as_path))?;
    let block = args.block.as_deref().map(files::read_block).transpose()?;
    let witness = files::read_json(&args.witness, WITNESS, |text| {
        BlockWitness::from_json(text, block.clone())
    })?;
    let spec = fork_rules(&args.rules)?;
    let report = witness.execute(&StatelessRules {
        parent: args.parent,
        gas_limit_max: args.gas_limit_max,
        merge_interval: args.merge_interval,
        strictness: match args.strict {
            true => Strictness::Eip8025,
            false => Strictness::OfForm,
        },
        ..StatelessRules::of(&spec)
    })?;
    let json = json!({
        "holds": true,
        "number": quantity(report.id.number),
        "hash": report.id.hash,
        "parent": report.parent.hash,
        "parent_was_given": args.parent.is_some(),
        "chain_id": quantity(report.chain_id),
        "fork": format!("{:?}", report.fork),
        "pre_root": report.pre_root,
        "state_root": report.state_root,
        "transactions": report.transactions,
        "gas": quantity(report.gas_used),
        "receipts_checked": report.receipts_checked,
        "unused_nodes": report.unused_nodes,
        "unused_codes": report.unused_codes,
        "unused_headers": report.unused_headers,
        "unproved_snapshot_root": report.snapshot_root,
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
    let table = Table::default()
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
        .row("root after", report.state_root);
    match report.snapshot_root {
        None => table,
        Some(root) => table.row("root of snapshot", format!("{root}, which is not proved")),
    }
}

/// The fork rules that the arguments select.
pub(super) fn fork_rules(args: &RulesArgs) -> Result<ChainSpec, Failure> {
    if let Some(path) = &args.genesis {
        let (name, file) = files::input(path)?.into_parts();
        let genesis =
            Genesis::stream_from(&name, BufReader::new(file), |_| Ok::<_, GenesisError>(()))?;
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
