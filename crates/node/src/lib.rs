//! One place that answers every question of a chain: blocks by name, states, transactions, receipts, logs and
//! witnesses, from whichever of history, index and preimages are there. It has no sockets: servers stand on it.
//!
//! A [`Node`] is made of a chain that this process writes to ([`Node::of_chain`]), or opened beside the process that
//! does ([`Node::open`]).
//!
//! ```
//! use cambium_chain::ChainSealer;
//! use cambium_node::{BlockRef, Node};
//! use cambium_state::{FaultyDisk, Options};
//! use cambium_workload::{Workload, WorkloadParams};
//! use std::sync::Arc;
//!
//! let params = WorkloadParams { accounts: 100, senders: Some(10), ..WorkloadParams::default() };
//! let workload = Workload::new(params)?;
//! let disk = Arc::new(FaultyDisk::new(1)); // a disk in memory
//! let chain = workload.init(disk, Options::default(), &mut |_| {})?;
//! let genesis = chain.block(0)?.header;
//! workload.generate(&genesis, &mut ChainSealer(&chain), |_| Ok(()))?;
//!
//! let node = Node::of_chain(chain);
//! let head = node.block(BlockRef::Latest)?;
//! assert_eq!(node.state_at(BlockRef::Latest)?.state_root()?, head.block.header.state_root);
//! let sender = node.receipts_of(&head)?[0].found.sender;
//! let (before, after) = (BlockRef::Number(head.id.number - 1), BlockRef::Hash(head.id.hash));
//! let nonce = |block| Ok::<_, Box<dyn std::error::Error>>(node.state_at(block)?.account_at(sender)?.unwrap().nonce);
//! assert!(nonce(before)? < nonce(after)?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | question | answered by |
//! |---|---|
//! | state at the head | the snapshot and the layers above it |
//! | values at an old block | a history's runs, or else reverts from the block log |
//! | proofs at an old block | an archive's nodes, or else reverts from the block log |
//! | blocks by number or hash | the block log, and the index for blocks that have left it |
//! | transactions, receipts, logs | the index; receipts that are not stored are made by executing the block again |

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod error;
mod block_ref;
mod beside;
mod headers;
mod open;
mod node;
mod blocks;
mod states;
mod lookup;
mod replay;
mod receipts;
mod logs;

pub use block_ref::BlockRef;
pub use blocks::FoundBlock;
pub use cambium_history::StateAt;
pub use error::NodeError;
pub use logs::{FoundLog, Logs};
pub use lookup::{FoundReceipt, FoundTransaction};
pub use node::Node;
pub use open::existing_disk;
