//! Cells of a blob (EIP-7594): the blob is the values of a polynomial at 4,096 points, and its extension the values at as many points
//! between them. 64 values are a cell; the first 64 of the 128 cells are the blob itself.
//!
//! Points are powers of a root of unity in the scalar field of BLS12-381, in bit-reversed order. Interpolation takes values in this
//! order and has coefficients in the natural one, and evaluation goes the other way, so nothing is reordered.

use alloy_primitives::{U256, uint};
use std::{iter::successors, sync::LazyLock};

/// The number of elements of the field.
const MODULUS: U256 =
    uint!(0x73eda753299d7d483339d80809a1d80553bda402fffe5bfeffffffff00000001_U256);
/// A generator of the field's multiplicative group.
const GENERATOR: U256 = uint!(7_U256);
/// Field elements of a blob.
const VALUES: usize = 4096;
/// Bytes of a field element, the most significant one first.
const VALUE_BYTES: usize = 32;

static ROOTS: LazyLock<Roots> = LazyLock::new(Roots::new);

/// Roots of unity.
struct Roots {
    /// One of twice the order of the points of a blob: it leads from each of them to a point of the extension.
    odd: U256,
    /// Powers of the root whose powers are the points of a blob, and of its inverse: half of each.
    forward: Vec<U256>,
    backward: Vec<U256>,
    /// The inverse of the number of values.
    scale: U256,
}

impl Roots {
    fn new() -> Self {
        let order = U256::from(2 * VALUES);
        let odd = GENERATOR.pow_mod((MODULUS - U256::ONE) / order, MODULUS);
        let root = product(odd, odd);
        let inverse = |value: U256| value.pow_mod(MODULUS - U256::from(2), MODULUS);
        let powers = |root: U256| {
            let all = successors(Some(U256::ONE), |power| Some(product(*power, root)));
            all.take(VALUES / 2).collect()
        };
        Self {
            odd,
            forward: powers(root),
            backward: powers(inverse(root)),
            scale: inverse(U256::from(VALUES)),
        }
    }
}

fn product(left: U256, right: U256) -> U256 {
    left.mul_mod(right, MODULUS)
}

fn sum(left: U256, right: U256) -> U256 {
    // Both are below 2^255.
    let sum = left + right;
    if sum >= MODULUS { sum - MODULUS } else { sum }
}

fn difference(left: U256, right: U256) -> U256 {
    match left >= right {
        true => left - right,
        false => left + MODULUS - right,
    }
}

/// The extension of a blob, 128 KiB as the blob itself: cells 64 to 127. `None` if the blob has something else than field elements.
pub(super) fn extension(blob: &[u8]) -> Option<Vec<u8>> {
    let values = blob.chunks_exact(VALUE_BYTES).map(U256::from_be_slice);
    let mut values: Vec<U256> = values.collect();
    if values.len() != VALUES || values.iter().any(|value| *value >= MODULUS) {
        return None;
    }
    let roots = &*ROOTS;
    interpolate(&mut values, &roots.backward);
    // Evaluated at the same points, the polynomial of these coefficients has the values between them.
    let mut factor = roots.scale;
    for coefficient in &mut values {
        *coefficient = product(*coefficient, factor);
        factor = product(factor, roots.odd);
    }
    evaluate(&mut values, &roots.forward);
    let bytes = values.iter().flat_map(U256::to_be_bytes::<VALUE_BYTES>);
    Some(bytes.collect())
}

/// From values in bit-reversed order to coefficients, times the number of values.
fn interpolate(values: &mut [U256], powers: &[U256]) {
    let mut half = 1;
    while half < values.len() {
        let step = powers.len() / half;
        for block in values.chunks_exact_mut(2 * half) {
            let (low, high) = block.split_at_mut(half);
            for (index, (low, high)) in low.iter_mut().zip(high).enumerate() {
                let turned = product(*high, powers[index * step]);
                (*low, *high) = (sum(*low, turned), difference(*low, turned));
            }
        }
        half *= 2;
    }
}

/// From coefficients to values in bit-reversed order.
fn evaluate(coefficients: &mut [U256], powers: &[U256]) {
    let mut half = coefficients.len() / 2;
    while half > 0 {
        let step = powers.len() / half;
        for block in coefficients.chunks_exact_mut(2 * half) {
            let (low, high) = block.split_at_mut(half);
            for (index, (low, high)) in low.iter_mut().zip(high).enumerate() {
                let turned = product(difference(*low, *high), powers[index * step]);
                (*low, *high) = (sum(*low, *high), turned);
            }
        }
        half /= 2;
    }
}
