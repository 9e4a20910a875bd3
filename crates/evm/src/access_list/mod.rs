//! A block's access list (EIP-7928), built while the block executes.
//!
//! ```text
//!   StepRecorder          what a step finds where it goes       one for each state that executes
//!     -> StepAccesses     what it touched, what it left else    may go to another thread
//!     -> AccessListBuilder  all steps, by index                 one for a block
//!     -> AccessList       canonical; compared with the given one elsewhere
//! ```
//!
//! Within a step only what was there before it counts: a value that goes and comes back, be it in
//! several calls, is no change, and a slot so written is a read. What revm loads is what counts as
//! touched: it loads nothing that is not paid for, and nothing for a transaction's own access
//! list (EIP-2930).

mod step;
mod builder;
mod index;
mod apply;
mod sizes;

pub use apply::listed_changes;
pub(crate) use builder::AccessListBuilder;
pub(crate) use index::{ChangedKey, ListIndex, SlotPlace, Unlisted};
pub use sizes::AccessListSizes;
pub(crate) use step::{Left, StepAccesses, StepRecorder};
