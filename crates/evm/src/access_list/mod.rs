//! A block's access list (EIP-7928), built while the block executes.
//!
//! ```text
//!   StepRecorder            values before the step              one per overlay
//!     -> StepAccesses       keys touched, values changed        can move to another thread
//!     -> AccessListBuilder  all steps, by index                 one per block
//!     -> AccessList         canonical form; compared with the block's list by the caller
//! ```
//!
//! A step's changes are relative to the state before the step. A value that changes and changes
//! back, even across several calls, is not a change, and such a slot counts as read. Each key that
//! revm loads counts as touched: it loads nothing before its gas is paid, and nothing for a
//! transaction's own access list (EIP-2930).

mod step;
mod builder;
mod index;
mod apply;
mod sizes;

pub use apply::{ListedChanges, listed_changes};
pub(crate) use builder::{AccessListBuilder, list_of};
pub(crate) use index::{ListIndex, ListedKey, SlotPlace, Unlisted};
pub use sizes::AccessListSizes;
pub(crate) use step::{Left, SomeAccesses, StepAccesses, StepRecorder};
