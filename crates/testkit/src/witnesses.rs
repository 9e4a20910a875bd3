//! Blocks executed from their witness alone, with honest witnesses and tampered ones.

use crate::Random;
use alloy_primitives::{B256, Bytes};
use cambium_chain::{
    Block, BlockWitness, StatelessError, StatelessReport, StatelessRules, WitnessForm,
};

/// What tampering came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tampering {
    /// Witnesses tried.
    pub tried: usize,
    /// Those that still executed: a block changed into another that is as good, or a change to
    /// what is no part of the proof.
    pub harmless: usize,
}

/// Sends a witness through its forms of JSON and executes it: the block's own header is what it
/// must prove.
///
/// # Errors
///
/// Returns why the witness does not verify the block.
pub fn execute_from_json(
    witness: &BlockWitness,
    rules: &StatelessRules<'_>,
) -> Result<StatelessReport, String> {
    for form in [WitnessForm::Own, WitnessForm::Reth, WitnessForm::Geth] {
        let json = witness.to_json(form).to_string();
        let block = (form != WitnessForm::Own).then(|| witness.block.clone());
        let read = BlockWitness::from_json(&json, block).map_err(|error| error.to_string())?;
        let mut expected = witness.clone();
        if form == WitnessForm::Geth {
            expected.witness.keys.clear();
        }
        if read != expected {
            return Err(format!("JSON of the form {form:?} changes the witness"));
        }
    }
    witness.execute(rules).map_err(|error| error.to_string())
}

/// Tampers with a good witness in every way in turn: each node, code and header left out, and a
/// bit flipped in it; bits flipped in the block. An error if one executes to a state root that is
/// not the one claimed, or if a node, code or header could be spared.
///
/// # Errors
///
/// Returns why the changed witness is refused.
pub fn tamper(
    good: &BlockWitness,
    rules: &StatelessRules<'_>,
    random: &mut Random,
) -> Result<Tampering, String> {
    type List = fn(&mut BlockWitness) -> &mut Vec<Bytes>;
    let lists: [(&str, List); 3] = [
        ("node", |witness| &mut witness.witness.state),
        ("code", |witness| &mut witness.witness.codes),
        ("header", |witness| &mut witness.witness.headers),
    ];
    let honest = good.execute(rules).map_err(|error| error.to_string())?;
    let mut done = Tampering::default();
    for (what, list) in lists {
        for at in 0..list(&mut good.clone()).len() {
            let mut without = good.clone();
            list(&mut without).remove(at);
            let mut flipped = good.clone();
            let bytes = &mut list(&mut flipped)[at];
            *bytes = flip(bytes, random);
            for (how, witness) in [("left out", without), ("flipped", flipped)] {
                done.tried += 1;
                let case = || format!("{what} {at} {how}");
                match witness.execute(rules) {
                    Ok(_) => return Err(format!("{}: executed all the same", case())),
                    // Nothing in the witness condemns a good block, unless it stands for a header.
                    Err(StatelessError::Invalid { fault, .. }) if what != "header" => {
                        return Err(format!("{}: the block is blamed: {fault}", case()));
                    }
                    Err(_) => {}
                }
            }
        }
    }
    for _ in 0..64 {
        let mut witness = good.clone();
        witness.block = flip(&witness.block, random);
        done.tried += 1;
        if let Ok(report) = witness.execute(rules) {
            done.harmless += 1;
            let claimed = claimed_root(&witness)?;
            if report.id == honest.id || report.state_root != claimed {
                return Err(format!("a changed block executes to {report:?}"));
            }
        }
    }
    Ok(done)
}

fn claimed_root(witness: &BlockWitness) -> Result<B256, String> {
    let block: Block =
        alloy_rlp::decode_exact(&witness.block[..]).map_err(|error| error.to_string())?;
    Ok(block.header.state_root)
}

fn flip(bytes: &Bytes, random: &mut Random) -> Bytes {
    let mut bytes = bytes.to_vec();
    let at = random.below(bytes.len() as u64) as usize;
    bytes[at] ^= 1 << random.below(8);
    bytes.into()
}
