//! A sealed block: it has a hash and a layer, and may not be durable yet.

use crate::{
    engine::parts::Engine,
    layers::tree::Layer,
    log::records::{BlockMeta, BlockRecord, check_record},
    view::state::View,
    write::seal::RootIs,
};
use alloy_primitives::{B256, Bytes};
use cambium_primitives::{BlockId, Changes};
use cambium_snapshot::StateError;
use std::sync::{Arc, atomic::Ordering};

/// A sealed block. Dropping it before it is committed removes it, and all blocks built on it.
pub struct Sealed {
    pub(crate) inner: Arc<Engine>,
    layer: Arc<Layer>,
    /// The block's encoded record; `None` once the log has it.
    record: Option<Vec<u8>>,
    /// References for the log after this block, if there are some: the payload of their record, without the block.
    references: Option<Vec<u8>>,
    root: RootIs,
}

impl Sealed {
    /// A block that has just got its layer, with its encoded record.
    pub(crate) fn new(
        inner: Arc<Engine>,
        layer: Arc<Layer>,
        record: Vec<u8>,
        root: RootIs,
    ) -> Self {
        let bytes = layer.bytes();
        inner
            .layers
            .sealed_bytes
            .fetch_add(bytes, Ordering::Relaxed);
        Self {
            inner,
            layer,
            record: Some(record),
            references: None,
            root,
        }
    }

    /// Sets the references that the log gets after this block.
    pub(crate) fn set_references(&mut self, references: Option<Vec<u8>>) {
        if references.is_some() {
            self.layer.set_leaves_since_references(0);
        }
        self.references = references;
    }

    /// Computes the state root of a block that was staged with a claimed one, and compares the two: see
    /// [`Session::finish_claimed`](crate::Session::finish_claimed). Returns at once if the root was computed before.
    ///
    /// Blocks are best verified in their order, on one thread: the tries move from each to the next.
    ///
    /// # Errors
    ///
    /// [`StateError::WrongRoot`] if the claim is false: the block can't be committed. [`StateError::UnknownBlock`] if it
    /// was dropped, and the errors of reads: [`View::account`].
    pub fn verify(&mut self) -> Result<(), StateError> {
        if self.root == RootIs::Claimed && self.record.is_some() {
            let _span = tracing::debug_span!("verify", block = %self.layer.block).entered();
            let (got, references) = self.inner.root_of(&self.layer)?;
            let (block, expected) = (self.layer.block, self.layer.state_root);
            if got != expected {
                return Err(StateError::WrongRoot {
                    block,
                    got,
                    expected,
                });
            }
            self.set_references(references);
        }
        self.root = RootIs::Computed;
        Ok(())
    }

    /// Number and hash of the block.
    pub fn id(&self) -> BlockId {
        self.layer.block
    }

    /// The state after the block.
    ///
    /// # Errors
    ///
    /// [`StateError::UnknownBlock`] if it was dropped together with a block below it.
    pub fn view(&self) -> Result<View, StateError> {
        self.check_alive()?;
        self.inner.view_of(self.layer.block)
    }

    /// Fails with [`StateError::UnknownBlock`] if the block was dropped. A later block with the
    /// same hash is another one.
    pub(crate) fn check_alive(&self) -> Result<(), StateError> {
        match self.layer.is_dropped() {
            true => Err(StateError::UnknownBlock(self.layer.block.hash)),
            false => Ok(()),
        }
    }

    /// Whether it is a block of this database.
    pub(crate) fn is_of(&self, inner: &Arc<Engine>) -> bool {
        Arc::ptr_eq(&self.inner, inner)
    }

    /// The hash of its parent.
    pub(crate) fn parent(&self) -> B256 {
        self.layer.parent_hash
    }

    /// Whether the log has the block.
    pub(crate) const fn is_durable(&self) -> bool {
        self.record.is_none()
    }

    /// The encoded record, if the log does not have it yet.
    pub(crate) fn record(&mut self) -> Option<&mut [u8]> {
        self.record.as_deref_mut()
    }

    /// References for the log after this block, without it, if there are some.
    pub(crate) fn references(&self) -> Option<&[u8]> {
        self.references.as_deref()
    }

    /// Marks the block as durable: dropping `self` removes nothing any more.
    pub(crate) fn is_committed(&mut self) {
        self.stop_waiting();
    }

    /// Stops counting the block as uncommitted. Returns whether it was.
    fn stop_waiting(&mut self) -> bool {
        let waited = self.record.take().is_some();
        if waited {
            let bytes = self.layer.bytes();
            self.inner
                .layers
                .sealed_bytes
                .fetch_sub(bytes, Ordering::Relaxed);
        }
        waited
    }
}

/// A sealed block whose body is still being made. Blocks can be built on it. Dropping it removes it, and all
/// blocks built on it.
pub struct WithoutBody {
    sealed: Sealed,
    /// All but the body.
    meta: BlockMeta,
    codes: Vec<(B256, Bytes)>,
}

impl WithoutBody {
    pub(crate) const fn new(sealed: Sealed, meta: BlockMeta, codes: Vec<(B256, Bytes)>) -> Self {
        Self {
            sealed,
            meta,
            codes,
        }
    }

    /// Number and hash of the block.
    pub fn id(&self) -> BlockId {
        self.sealed.id()
    }

    /// The changes of the block.
    pub fn changes(&self) -> &Changes {
        &self.sealed.layer.changes
    }

    /// The values before the block of everything that it changed.
    pub fn reverts(&self) -> &Changes {
        &self.sealed.layer.reverts
    }

    /// Gives the block its body.
    ///
    /// # Errors
    ///
    /// [`StoreError::TooLarge`](cambium_store::StoreError::TooLarge) if it exceeds the size of a record.
    pub fn complete(self, body: Bytes) -> Result<Sealed, StateError> {
        let Self {
            mut sealed,
            mut meta,
            codes,
        } = self;
        meta.body = body;
        let (changes, reverts) = (&sealed.layer.changes, &sealed.layer.reverts);
        let least = BlockRecord::bytes_min(&meta, changes, reverts, &codes);
        check_record("record of a block", least)?;
        let record = BlockRecord::encode(&meta, changes, reverts, &codes);
        check_record("record of a block", record.len())?;
        sealed.record = Some(record);
        Ok(sealed)
    }
}

impl Drop for Sealed {
    fn drop(&mut self) {
        if self.stop_waiting() {
            self.inner.drop_sealed(&self.layer);
        }
    }
}
