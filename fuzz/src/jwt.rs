//! Tokens of the Engine API.

use crate::input::Input;
use cambium_rpc::JwtSecret;
use serde_json::Value;
use sha2::{Digest, Sha256};

const SECRET: [u8; 32] = [7; 32];
/// Time of the server, in seconds.
const NOW: u64 = 1000;

/// HMAC-SHA256 by its definition (RFC 2104).
fn hmac(text: &[u8]) -> [u8; 32] {
    let key = |pad: u8| {
        let mut key = [pad; 64];
        for (byte, secret) in key.iter_mut().zip(SECRET) {
            *byte ^= secret;
        }
        key
    };
    let inner = Sha256::new().chain_update(key(0x36)).chain_update(text);
    let outer = Sha256::new().chain_update(key(0x5c));
    outer.chain_update(inner.finalize()).finalize().into()
}

/// Base64 of URLs without padding (RFC 4648).
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let mut word = [0; 4];
        word[1..=three.len()].copy_from_slice(three);
        let word = u32::from_be_bytes(word);
        for place in 0..=three.len() {
            let digit = word >> (18 - 6 * place) & 63;
            text.push(char::from(DIGITS[digit as usize]));
        }
    }
    text
}

/// Input: a byte; if it is even, a piece that is the header, then the claims, both of which are signed; else a token as it is.
///
/// A token is accepted only if it says that its algorithm is HS256, and that it was made within a minute.
pub fn jwt(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let secret = JwtSecret::new(SECRET);
    if input.u8() & 1 != 0 {
        let token = String::from_utf8_lossy(input.rest());
        let verified = secret.verify(&token, NOW);
        let Some((signed, signature)) = token.rsplit_once('.') else {
            return assert!(verified.is_err(), "a token without parts");
        };
        let is_signed = signature == base64(&hmac(signed.as_bytes()));
        return assert!(verified.is_err() || is_signed, "a forged token");
    }
    let (header, claims) = (input.piece(), input.rest());
    let signed = format!("{}.{}", base64(header), base64(claims));
    let signature = hmac(signed.as_bytes());
    let token = format!("{signed}.{}", base64(&signature));
    let verified = secret.verify(&token, NOW);
    let is_text = [header, claims]
        .iter()
        .all(|text| std::str::from_utf8(text).is_ok());
    // What the model can't read may be escapes or numbers in fields that are skipped.
    let json = |text: &[u8]| serde_json::from_slice::<Value>(text);
    let is_own = json(header).map_or(true, |header| header["alg"] == "HS256");
    let is_fresh = json(claims).map_or(true, |claims| {
        let made = claims["iat"].as_u64();
        made.is_some_and(|made| made.abs_diff(NOW) <= 60)
    });
    assert!(
        verified.is_err() || (is_text && is_own && is_fresh),
        "{}.{} is accepted",
        String::from_utf8_lossy(header),
        String::from_utf8_lossy(claims)
    );
    // With a bit of the signature changed it is of another secret.
    let mut other = signature;
    other[31] ^= 1;
    let forged = format!("{signed}.{}", base64(&other));
    assert!(secret.verify(&forged, NOW).is_err(), "a forged token");
}
