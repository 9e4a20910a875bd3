//! Execution of blocks from intact witnesses and from tampered ones.

use alloy_primitives::{B256, Bytes};
use cambium_chain::{
    Block, BlockWitness, StatelessError, StatelessReport, StatelessRules, WitnessForm,
};
use cambium_seeds::Random;

/// Result of tampering with a witness.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tampering {
    /// Number of changed witnesses that were executed.
    pub tried: usize,
    /// Number of these that still executed: the change turned the block into another valid one, or
    /// is in a part that the proof does not cover.
    pub harmless: usize,
}

/// Converts a witness to each of its JSON formats and back, and executes it.
///
/// # Errors
///
/// Returns why the witness does not verify the block.
pub fn execute_from_json(
    witness: &BlockWitness,
    rules: &StatelessRules<'_>,
) -> Result<StatelessReport, String> {
    for form in WitnessForm::ALL {
        let json = witness.to_json(form).to_string();
        let block = (form != WitnessForm::Own).then(|| witness.block.clone());
        let read = BlockWitness::from_json(&json, block).map_err(|error| error.to_string())?;
        let mut expected = BlockWitness {
            form,
            ..witness.clone()
        };
        if matches!(form, WitnessForm::Eip8025 | WitnessForm::Geth) {
            expected.witness.keys.clear();
        }
        if read != expected {
            return Err(format!("JSON of the form {form:?} changes the witness"));
        }
    }
    witness.execute(rules).map_err(|error| error.to_string())
}

/// Executes changed copies of a valid witness: each node, code and header is removed, and has a bit
/// flipped, and random bits of the block are flipped.
///
/// # Errors
///
/// Returns an error if a copy without a node, code or header, or with a changed one, still
/// executes, or if a changed block executes to another state root than its header has.
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
                    // No node or code can show that a valid block is invalid. A header can.
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
