//! Parts beside a database, such as its history, which are opened on first use.

use cambium_disk::Disk;
use std::sync::{Arc, OnceLock};

/// A history or an index, which may be absent.
pub(crate) enum Beside<T, O> {
    /// Not to be used.
    None,
    /// Open.
    Open(T),
    /// On a disk, if it is there.
    OnDisk {
        disk: Arc<dyn Disk>,
        options: O,
        opened: OnceLock<Option<T>>,
    },
}

impl<T, O: Copy> Beside<T, O> {
    pub(crate) const fn on(disk: Arc<dyn Disk>, options: O) -> Self {
        Self::OnDisk {
            disk,
            options,
            opened: OnceLock::new(),
        }
    }

    /// Returns it, opened by `open` the first time, which returns `None` if there is none to use.
    pub(crate) fn get<E>(
        &self,
        open: impl FnOnce(Arc<dyn Disk>, O) -> Result<Option<T>, E>,
    ) -> Result<Option<&T>, E> {
        match self {
            Self::None => Ok(None),
            Self::Open(there) => Ok(Some(there)),
            Self::OnDisk {
                disk,
                options,
                opened,
            } => match opened.get() {
                Some(there) => Ok(there.as_ref()),
                None => {
                    let found = open(disk.clone(), *options)?;
                    Ok(opened.get_or_init(|| found).as_ref())
                }
            },
        }
    }

    /// The same one, not opened yet where it is on a disk.
    pub(crate) fn anew(&self) -> Self
    where
        T: Clone,
    {
        match self {
            Self::None => Self::None,
            Self::Open(there) => Self::Open(there.clone()),
            Self::OnDisk { disk, options, .. } => Self::on(disk.clone(), *options),
        }
    }

    /// Forgets what was opened: the next use opens it as it is then.
    pub(crate) fn reopen(&mut self) {
        if let Self::OnDisk { opened, .. } = self {
            *opened = OnceLock::new();
        }
    }
}
