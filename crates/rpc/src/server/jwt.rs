//! The token by which a consensus client shows that it has the same secret: a JWT with HS256, made within a minute.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, Mac};
use http::{HeaderMap, header::AUTHORIZATION};
use serde::{Deserialize, de::DeserializeOwned};
use sha2::Sha256;
use std::{
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Read, Write},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

/// By how many seconds a token may be older or newer than now.
const AGE_SECONDS_MAX: u64 = 60;
const SECRET_BYTES: usize = 32;

/// The secret that a server shares with the clients that may call it.
#[derive(Clone, PartialEq, Eq)]
pub struct JwtSecret([u8; SECRET_BYTES]);

impl std::fmt::Debug for JwtSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JwtSecret")
    }
}

/// Why a secret can't be had.
#[derive(Debug, thiserror::Error)]
pub enum JwtError {
    /// Its file can't be read or made.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The file has something else.
    #[error("{path}: a secret is 32 bytes in hex", path = path.display())]
    NoSecret {
        /// The file.
        path: PathBuf,
    },
}

/// What is wrong with a request.
pub(super) type Refused = &'static str;

#[derive(Deserialize)]
struct Header {
    alg: String,
}

#[derive(Deserialize)]
struct Claims {
    iat: u64,
}

impl JwtSecret {
    /// A secret.
    pub const fn new(bytes: [u8; SECRET_BYTES]) -> Self {
        Self(bytes)
    }

    /// Reads a secret: 32 bytes in hex, with `0x` or without.
    ///
    /// # Errors
    ///
    /// If the file can't be read, or has something else.
    pub fn read(path: &Path) -> Result<Self, JwtError> {
        let file = |source| JwtError::File {
            path: path.to_owned(),
            source,
        };
        let text = fs::read_to_string(path).map_err(file)?;
        let text = text.trim();
        let digits = text.strip_prefix("0x").unwrap_or(text);
        let bytes = alloy_primitives::hex::decode_to_array(digits);
        bytes.map(Self).map_err(|_| JwtError::NoSecret {
            path: path.to_owned(),
        })
    }

    /// Reads a secret, or makes one if there is no file. Only its owner may read the new file.
    ///
    /// # Errors
    ///
    /// As [`JwtSecret::read`], and if the file can't be made.
    pub fn read_or_make(path: &Path) -> Result<Self, JwtError> {
        match Self::make(path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Self::read(path),
            made => made.map_err(|source| JwtError::File {
                path: path.to_owned(),
                source,
            }),
        }
    }

    fn make(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(path)?;
        let mut bytes = [0; SECRET_BYTES];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        writeln!(file, "{}", alloy_primitives::hex::encode(bytes))?;
        file.sync_all()?;
        Ok(Self(bytes))
    }

    /// A token of now.
    pub fn token(&self) -> String {
        self.token_at(now())
    }

    /// A token that was made at a time, in seconds since 1970.
    pub fn token_at(&self, seconds: u64) -> String {
        let encode = |text: String| URL_SAFE_NO_PAD.encode(text);
        let header = encode(r#"{"alg":"HS256","typ":"JWT"}"#.to_owned());
        let signed = format!("{header}.{}", encode(format!("{{\"iat\":{seconds}}}")));
        let signature = URL_SAFE_NO_PAD.encode(self.mac(&signed).finalize().into_bytes());
        format!("{signed}.{signature}")
    }

    fn mac(&self, signed: &str) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0)
            .unwrap_or_else(|_| unreachable!("a key has any length"));
        mac.update(signed.as_bytes());
        mac
    }

    /// Whether a request has a token of this secret.
    pub(super) fn check(&self, headers: &HeaderMap) -> Result<(), Refused> {
        let none = "the token is missing: Authorization: Bearer TOKEN\n";
        let value = headers.get(AUTHORIZATION).ok_or(none)?;
        let value = value.to_str().map_err(|_| none)?;
        let token = value
            .split_once(' ')
            .filter(|(kind, _)| kind.eq_ignore_ascii_case("bearer"));
        self.verify(token.ok_or(none)?.1.trim(), now())
    }

    /// Whether a token is one of this secret that was made within a minute of a time, in seconds since 1970.
    ///
    /// # Errors
    ///
    /// What is wrong with it, as a line of text.
    pub fn verify(&self, token: &str, now: u64) -> Result<(), &'static str> {
        let broken = "the token is no JWT\n";
        let (signed, signature) = token.rsplit_once('.').ok_or(broken)?;
        let (header, claims) = signed.split_once('.').ok_or(broken)?;
        let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|_| broken);
        let header: Header = object(&decode(header)?).ok_or(broken)?;
        if header.alg != "HS256" {
            return Err("the token's algorithm is not HS256\n");
        }
        // Compared in constant time.
        self.mac(signed)
            .verify_slice(&decode(signature)?)
            .map_err(|_| "the token is of another secret\n")?;
        let claims: Claims = object(&decode(claims)?).ok_or("the token has no iat\n")?;
        match claims.iat.abs_diff(now) <= AGE_SECONDS_MAX {
            true => Ok(()),
            false => Err("the token is stale, or the clocks differ by more than a minute\n"),
        }
    }
}

/// What an object has; `None` if the text is something else, such as an array with the same values.
fn object<T: DeserializeOwned>(text: &[u8]) -> Option<T> {
    let text = std::str::from_utf8(text).ok()?;
    let is_object = text.trim_ascii_start().starts_with('{');
    is_object.then(|| serde_json::from_str(text).ok()).flatten()
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
