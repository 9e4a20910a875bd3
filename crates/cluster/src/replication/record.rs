//! Records of the stream: block updates, epochs, and choices of a head, each signed by a builder.
//!
//! ```text
//!   record   version: 1 byte | kind: 1 byte | list
//!   update   kind 1: [chain id, epoch, digest of the update, signature, update]
//!   epoch    kind 2: [chain id, number, builder, signature]
//!   choice   kind 3: [chain id, epoch, number, head, safe, finalized, signature]
//! ```
//!
//! The list is RLP. A signature has 65 bytes: r, s, and the recovery id. It is made with secp256k1 over the Keccak-256 of the hash of a
//! domain, which is different for each kind, and of all fields, as numbers of 8 bytes and hashes of 32.
//! The signature of an update covers the block's hash, its parent's, and the digest of the encoded update.

use crate::{
    message::{is_all, list, unlisted},
    update::{BlockUpdate, UPDATE_BYTES_MAX, UpdateError},
};
use alloy_primitives::{Address, B256, Bytes, FixedBytes, keccak256};
use alloy_rlp::{Decodable, Header as RlpHeader};
use cambium_primitives::BlockId;
use secp256k1::{
    Message, PublicKey, SECP256K1, SecretKey,
    ecdsa::{RecoverableSignature, RecoveryId},
};

/// Most bytes of an encoded record: those of an update and of what is around it.
pub const RECORD_BYTES_MAX: usize = UPDATE_BYTES_MAX + 512;

const VERSION: u8 = 2;
const UPDATE: u8 = 1;
const EPOCH: u8 = 2;
const CHOICE: u8 = 3;

const UPDATE_DOMAIN: &[u8] = b"cambium block update";
const EPOCH_DOMAIN: &[u8] = b"cambium epoch";
const CHOICE_DOMAIN: &[u8] = b"cambium choice of a head";

/// Signature of a record: r, s, and the recovery id.
type Signature = FixedBytes<65>;

/// A record of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The update of a block. Competing children of one parent are ordinary updates.
    Update(Box<SignedUpdate>),
    /// Opens an epoch: from here on, updates and choices of lower epochs are ignored.
    Epoch(Epoch),
    /// Chooses the canonical head among the blocks of the updates.
    Choice(Choice),
}

/// The update of a block, signed by the builder of its epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedUpdate {
    chain_id: u64,
    epoch: u64,
    id: BlockId,
    update: BlockUpdate,
    /// The update as it was signed.
    encoded: Bytes,
    digest: B256,
    signature: Signature,
}

/// Opens an epoch. It is signed by its builder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Epoch {
    /// Chain of the epoch.
    pub chain_id: u64,
    /// Number of the epoch. Each is higher than those before it.
    pub number: u64,
    /// Whose updates and choices count in this epoch.
    pub builder: Address,
    signature: Signature,
}

/// The builder's choice of the canonical chain. The last one counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Chain of the blocks.
    pub chain_id: u64,
    /// Epoch in which it was published.
    pub epoch: u64,
    /// Number of the choice in its epoch, from 1: an old one can't be repeated.
    pub number: u64,
    /// The newest canonical block.
    pub head: BlockId,
    /// The newest block that is unlikely to be replaced.
    pub safe: BlockId,
    /// The newest block that is never replaced.
    pub finalized: BlockId,
    signature: Signature,
}

/// Why a record is not valid.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// It is longer than any record.
    #[error("a record of {0} bytes: at most {RECORD_BYTES_MAX} are allowed")]
    TooLong(usize),
    /// It has no version and kind.
    #[error("a record of {0} bytes has no version and kind")]
    TooShort(usize),
    /// It has a version that this program does not read.
    #[error("a record of version {0}: this program reads version {VERSION}")]
    Version(u8),
    /// It has an unknown kind.
    #[error("a record of the unknown kind {0}")]
    Kind(u8),
    /// The RLP of its fields is malformed.
    #[error("malformed record: {0}")]
    Rlp(#[from] alloy_rlp::Error),
    /// Its update is malformed.
    #[error(transparent)]
    Update(#[from] Box<UpdateError>),
    /// The update is another one than the record names.
    #[error("the update of a record hashes to {got}, and the record names {named}")]
    Digest {
        /// Digest in the record.
        named: B256,
        /// Digest of the update.
        got: B256,
    },
    /// It belongs to another chain.
    #[error("a record of chain {got}: this is chain {expected}")]
    Chain {
        /// The configured chain.
        expected: u64,
        /// The record's chain.
        got: u64,
    },
    /// Its signature is malformed.
    #[error("a record has no valid signature: {0}")]
    Signature(&'static str),
    /// The signature is that of none of the configured builders.
    #[error("a record is signed by {0}, which is no configured builder")]
    Stranger(Address),
    /// An epoch is signed by another builder than it names.
    #[error("epoch {number} of builder {builder} is signed by {signer}")]
    OtherSigner {
        /// Number of the epoch.
        number: u64,
        /// Builder that it names.
        builder: Address,
        /// Builder that signed it.
        signer: Address,
    },
}

impl Record {
    /// Epoch of the record.
    pub const fn epoch(&self) -> u64 {
        match self {
            Self::Update(update) => update.epoch,
            Self::Epoch(epoch) => epoch.number,
            Self::Choice(choice) => choice.epoch,
        }
    }

    /// The record as bytes: see the head of this module.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        match self {
            Self::Update(it) => {
                out.reserve(it.encoded.len() + 256);
                out.push(UPDATE);
                list(
                    &[
                        &it.chain_id,
                        &it.epoch,
                        &it.digest,
                        &it.signature,
                        &it.encoded,
                    ],
                    &mut out,
                );
            }
            Self::Epoch(it) => {
                out.push(EPOCH);
                list(
                    &[&it.chain_id, &it.number, &it.builder, &it.signature],
                    &mut out,
                );
            }
            Self::Choice(it) => {
                out.push(CHOICE);
                list(
                    &[
                        &it.chain_id,
                        &it.epoch,
                        &it.number,
                        &it.head.number,
                        &it.head.hash,
                        &it.safe.number,
                        &it.safe.hash,
                        &it.finalized.number,
                        &it.finalized.hash,
                        &it.signature,
                    ],
                    &mut out,
                );
            }
        }
        out
    }

    /// Decodes a record, which is untrusted. Its signature is not verified: see [`BuilderKeys::verify`].
    ///
    /// # Errors
    ///
    /// If it is malformed, too long, or names another update than it has.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        if bytes.len() > RECORD_BYTES_MAX {
            return Err(RecordError::TooLong(bytes.len()));
        }
        let [version, kind, rest @ ..] = bytes else {
            return Err(RecordError::TooShort(bytes.len()));
        };
        if *version != VERSION {
            return Err(RecordError::Version(*version));
        }
        let mut rest = rest;
        let mut fields = unlisted(&mut rest)?;
        is_all(rest)?;
        let record = match *kind {
            UPDATE => Self::Update(Box::new(SignedUpdate::decode(&mut fields)?)),
            EPOCH => Self::Epoch(Epoch {
                chain_id: u64::decode(&mut fields)?,
                number: u64::decode(&mut fields)?,
                builder: Address::decode(&mut fields)?,
                signature: Signature::decode(&mut fields)?,
            }),
            CHOICE => Self::Choice(Choice {
                chain_id: u64::decode(&mut fields)?,
                epoch: u64::decode(&mut fields)?,
                number: u64::decode(&mut fields)?,
                head: block_id(&mut fields)?,
                safe: block_id(&mut fields)?,
                finalized: block_id(&mut fields)?,
                signature: Signature::decode(&mut fields)?,
            }),
            kind => return Err(RecordError::Kind(kind)),
        };
        is_all(fields)?;
        Ok(record)
    }

    /// Keccak-256 of what the signature covers.
    fn signed_hash(&self) -> B256 {
        match self {
            Self::Update(it) => update_hash(
                it.chain_id,
                it.epoch,
                it.id.hash,
                it.update.header.parent_hash,
                it.digest,
            ),
            Self::Epoch(it) => epoch_hash(it.chain_id, it.number, it.builder),
            Self::Choice(it) => choice_hash(
                it.chain_id,
                it.epoch,
                it.number,
                [it.head, it.safe, it.finalized],
            ),
        }
    }

    const fn signature(&self) -> &Signature {
        match self {
            Self::Update(it) => &it.signature,
            Self::Epoch(it) => &it.signature,
            Self::Choice(it) => &it.signature,
        }
    }

    const fn chain_id(&self) -> u64 {
        match self {
            Self::Update(it) => it.chain_id,
            Self::Epoch(it) => it.chain_id,
            Self::Choice(it) => it.chain_id,
        }
    }
}

impl From<SignedUpdate> for Record {
    fn from(update: SignedUpdate) -> Self {
        Self::Update(Box::new(update))
    }
}

impl From<Epoch> for Record {
    fn from(epoch: Epoch) -> Self {
        Self::Epoch(epoch)
    }
}

impl From<Choice> for Record {
    fn from(choice: Choice) -> Self {
        Self::Choice(choice)
    }
}

impl SignedUpdate {
    /// Epoch in which it was published.
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Number and hash of the block: those of the header.
    pub const fn id(&self) -> BlockId {
        self.id
    }

    /// Hash of the parent.
    pub const fn parent(&self) -> B256 {
        self.update.header.parent_hash
    }

    /// The update, without who has signed it.
    pub fn into_update(self) -> BlockUpdate {
        self.update
    }

    /// What the block changes.
    pub const fn update(&self) -> &BlockUpdate {
        &self.update
    }

    fn decode(fields: &mut &[u8]) -> Result<Self, RecordError> {
        let chain_id = u64::decode(fields)?;
        let epoch = u64::decode(fields)?;
        let named = B256::decode(fields)?;
        let signature = Signature::decode(fields)?;
        let encoded = RlpHeader::decode_bytes(fields, false)?;
        // First of all: only bytes that a builder has hashed are decoded.
        let got = keccak256(encoded);
        if got != named {
            return Err(RecordError::Digest { named, got });
        }
        let update = BlockUpdate::decode(encoded).map_err(Box::new)?;
        Ok(Self {
            chain_id,
            epoch,
            id: update.id(),
            update,
            encoded: Bytes::copy_from_slice(encoded),
            digest: named,
            signature,
        })
    }
}

fn block_id(fields: &mut &[u8]) -> Result<BlockId, alloy_rlp::Error> {
    Ok(BlockId::new(u64::decode(fields)?, B256::decode(fields)?))
}

/// Hash of a domain, numbers and hashes. Each part has a fixed length, so different fields have different bytes.
fn hash_of(domain: &[u8], numbers: &[u64], hashes: &[B256]) -> B256 {
    let mut bytes = keccak256(domain).to_vec();
    for number in numbers {
        bytes.extend_from_slice(&number.to_be_bytes());
    }
    for hash in hashes {
        bytes.extend_from_slice(&hash.0);
    }
    keccak256(bytes)
}

fn update_hash(chain_id: u64, epoch: u64, block: B256, parent: B256, digest: B256) -> B256 {
    hash_of(UPDATE_DOMAIN, &[chain_id, epoch], &[block, parent, digest])
}

fn epoch_hash(chain_id: u64, number: u64, builder: Address) -> B256 {
    hash_of(EPOCH_DOMAIN, &[chain_id, number], &[builder.into_word()])
}

fn choice_hash(chain_id: u64, epoch: u64, number: u64, blocks: [BlockId; 3]) -> B256 {
    let [head, safe, finalized] = blocks;
    let numbers = [
        chain_id,
        epoch,
        number,
        head.number,
        safe.number,
        finalized.number,
    ];
    hash_of(
        CHOICE_DOMAIN,
        &numbers,
        &[head.hash, safe.hash, finalized.hash],
    )
}

/// The chain's builders, by the chain's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuilderKeys {
    /// Chain for which they build.
    pub chain_id: u64,
    /// Addresses of their keys.
    pub keys: Vec<Address>,
}

impl BuilderKeys {
    /// Verifies that a record belongs to the chain and is signed by a configured builder. Returns the builder.
    ///
    /// # Errors
    ///
    /// If it is not.
    pub fn verify(&self, record: &Record) -> Result<Address, RecordError> {
        let (expected, got) = (self.chain_id, record.chain_id());
        if expected != got {
            return Err(RecordError::Chain { expected, got });
        }
        let signer = recover(record.signed_hash(), record.signature())?;
        if !self.keys.contains(&signer) {
            return Err(RecordError::Stranger(signer));
        }
        match record {
            Record::Epoch(epoch) if epoch.builder != signer => Err(RecordError::OtherSigner {
                number: epoch.number,
                builder: epoch.builder,
                signer,
            }),
            _ => Ok(signer),
        }
    }
}

/// The address whose key has signed a hash. Of the two signatures that any key has for a hash only the one with the lower s is
/// valid, so that others can't change it.
fn recover(hash: B256, signature: &Signature) -> Result<Address, RecordError> {
    let malformed = RecordError::Signature;
    let id = RecoveryId::try_from(i32::from(signature[64]))
        .map_err(|_| malformed("the recovery id is not in 0 .. 4"))?;
    let parsed = RecoverableSignature::from_compact(&signature[..64], id)
        .map_err(|_| malformed("r or s is out of range"))?;
    let standard = parsed.to_standard();
    let mut lower = standard;
    lower.normalize_s();
    if lower != standard {
        return Err(malformed("s is not the lower one"));
    }
    let key = SECP256K1
        .recover_ecdsa(Message::from_digest(hash.0), &parsed)
        .map_err(|_| malformed("no key has made it"))?;
    Ok(address_of(&key))
}

fn address_of(key: &PublicKey) -> Address {
    Address::from_raw_public_key(&key.serialize_uncompressed()[1..])
}

/// The bytes of a secret key are no key of secp256k1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "32 bytes that are no secret key of secp256k1: they are zero, or above the order of the curve"
)]
pub struct SignerError;

/// Signs the records of one builder.
#[derive(Clone)]
pub struct Signer {
    chain_id: u64,
    secret: SecretKey,
    address: Address,
}

impl std::fmt::Debug for Signer {
    /// Shows the address, and not the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Signer({} of chain {})", self.address, self.chain_id)
    }
}

impl Signer {
    /// A signer with this secret key.
    ///
    /// # Errors
    ///
    /// If the bytes are no key.
    pub fn new(chain_id: u64, secret: [u8; 32]) -> Result<Self, SignerError> {
        let secret = SecretKey::from_byte_array(secret).map_err(|_| SignerError)?;
        let address = address_of(&PublicKey::from_secret_key(SECP256K1, &secret));
        Ok(Self {
            chain_id,
            secret,
            address,
        })
    }

    /// Address of the key.
    pub const fn address(&self) -> Address {
        self.address
    }

    /// The chain for which it signs.
    pub const fn chain_id(&self) -> u64 {
        self.chain_id
    }

    /// Signs the update of a block.
    pub fn sign_update(&self, epoch: u64, update: BlockUpdate) -> SignedUpdate {
        let encoded = Bytes::from(update.encode());
        let (id, digest) = (update.id(), keccak256(&encoded));
        let parent = update.header.parent_hash;
        let hash = update_hash(self.chain_id, epoch, id.hash, parent, digest);
        SignedUpdate {
            chain_id: self.chain_id,
            epoch,
            id,
            update,
            encoded,
            digest,
            signature: self.sign(hash),
        }
    }

    /// Signs the opening of an epoch.
    pub fn open_epoch(&self, number: u64) -> Epoch {
        Epoch {
            chain_id: self.chain_id,
            number,
            builder: self.address,
            signature: self.sign(epoch_hash(self.chain_id, number, self.address)),
        }
    }

    /// Signs a choice of the canonical head. `number` is its number in the epoch, from 1.
    pub fn choose(
        &self,
        epoch: u64,
        number: u64,
        head: BlockId,
        safe: BlockId,
        finalized: BlockId,
    ) -> Choice {
        let hash = choice_hash(self.chain_id, epoch, number, [head, safe, finalized]);
        Choice {
            chain_id: self.chain_id,
            epoch,
            number,
            head,
            safe,
            finalized,
            signature: self.sign(hash),
        }
    }

    fn sign(&self, hash: B256) -> Signature {
        let signature =
            SECP256K1.sign_ecdsa_recoverable(Message::from_digest(hash.0), &self.secret);
        let (id, compact) = signature.serialize_compact();
        let mut bytes = [0; 65];
        bytes[..64].copy_from_slice(&compact);
        // 0 to 3.
        bytes[64] = i32::from(id) as u8;
        bytes.into()
    }
}
