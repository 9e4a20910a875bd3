//! The names of the faulty disk: visible, durable, and the pending changes between them.

use super::chance::{Fate, Random};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
};

#[derive(Debug, Default)]
pub(super) struct Names {
    live: Tree,
    durable: Tree,
    pending: Vec<Change>,
    inodes: u64,
}

#[derive(Clone, Debug, Default)]
struct Tree {
    files: BTreeMap<String, u64>,
    dirs: BTreeSet<String>,
}

#[derive(Clone, Debug)]
enum Change {
    Create {
        path: String,
        inode: u64,
    },
    Rename {
        from: String,
        to: String,
        inode: u64,
    },
    Remove {
        path: String,
        inode: u64,
    },
    CreateDir {
        path: String,
    },
}

/// Returns the directory of `path`; `""` is the root.
fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(dir, _)| dir)
}

impl Names {
    pub(super) fn file(&self, path: &str) -> Option<u64> {
        self.live.files.get(path).copied()
    }

    pub(super) fn files(&self) -> impl Iterator<Item = u64> + '_ {
        self.live.files.values().copied()
    }

    pub(super) fn file_names(&self) -> Vec<String> {
        self.live.files.keys().cloned().collect()
    }

    pub(super) fn exists(&self, path: &str) -> bool {
        self.live.has_dir(path) || self.live.files.contains_key(path)
    }

    pub(super) fn create(&mut self, path: &str) -> io::Result<u64> {
        if !self.live.has_dir(parent(path)) {
            return Err(io::ErrorKind::NotFound.into());
        }
        if self.exists(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.inodes += 1;
        let inode = self.inodes;
        self.change(Change::Create {
            path: path.to_owned(),
            inode,
        });
        Ok(inode)
    }

    /// Returns the number of names of a file.
    pub(super) fn of_inode(&self, inode: u64) -> u64 {
        let files = self.live.files.values();
        files.filter(|other| **other == inode).count() as u64
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let inode = self.file(from).ok_or(io::ErrorKind::NotFound)?;
        if parent(from) != parent(to) {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "rename across directories",
            ));
        }
        self.change(Change::Rename {
            from: from.to_owned(),
            to: to.to_owned(),
            inode,
        });
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &str) -> io::Result<()> {
        let inode = self.file(path).ok_or(io::ErrorKind::NotFound)?;
        self.change(Change::Remove {
            path: path.to_owned(),
            inode,
        });
        Ok(())
    }

    pub(super) fn create_dir(&mut self, path: &str) {
        if self.live.has_dir(path) {
            return;
        }
        self.create_dir(parent(path));
        self.change(Change::CreateDir {
            path: path.to_owned(),
        });
    }

    pub(super) fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        if !self.live.has_dir(dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let all = self.live.files.keys().chain(&self.live.dirs);
        let inside = all.filter(|path| !path.is_empty() && parent(path) == dir);
        let mut names: Vec<String> = inside
            .map(|path| path[dir.len()..].trim_start_matches('/').to_owned())
            .collect();
        names.sort();
        Ok(names)
    }

    pub(super) fn sync(&mut self, dir: &str) -> io::Result<()> {
        if !self.live.has_dir(dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        for change in std::mem::take(&mut self.pending) {
            if change.dir() == dir {
                change.apply(&mut self.durable);
            } else {
                self.pending.push(change);
            }
        }
        Ok(())
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.live);
        self.pending.push(change);
    }

    /// Returns the same names, all of them durable.
    pub(super) fn duplicate(&self) -> Self {
        Self {
            live: self.live.clone(),
            durable: self.live.clone(),
            pending: Vec::new(),
            inodes: self.inodes,
        }
    }

    /// Returns the names as they are after a crash.
    pub(super) fn crash(&self, fate: &Fate, random: &mut Random) -> Self {
        let mut tree = self.durable.clone();
        for change in &self.pending {
            if fate.keeps(random) {
                change.apply(&mut tree);
            }
        }
        tree.drop_orphans();
        Self {
            live: tree.clone(),
            durable: tree,
            pending: Vec::new(),
            inodes: self.inodes,
        }
    }
}

impl Tree {
    fn has_dir(&self, dir: &str) -> bool {
        dir.is_empty() || self.dirs.contains(dir)
    }

    /// Removes everything in directories that do not exist.
    fn drop_orphans(&mut self) {
        // A directory sorts before its contents, so one pass is enough.
        for dir in self.dirs.clone() {
            if !self.has_dir(parent(&dir)) {
                self.dirs.remove(&dir);
            }
        }
        let dirs = &self.dirs;
        self.files
            .retain(|path, _| parent(path).is_empty() || dirs.contains(parent(path)));
    }
}

impl Change {
    fn dir(&self) -> &str {
        match self {
            Self::Create { path, .. } | Self::Remove { path, .. } | Self::CreateDir { path } => {
                parent(path)
            }
            Self::Rename { from, .. } => parent(from),
        }
    }

    /// Applies the change to names from which earlier changes may be missing.
    fn apply(&self, tree: &mut Tree) {
        match self {
            Self::Create { path, inode } => {
                tree.files.insert(path.clone(), *inode);
            }
            Self::Rename { from, to, inode } => {
                if tree.files.get(from) == Some(inode) {
                    tree.files.remove(from);
                }
                tree.files.insert(to.clone(), *inode);
            }
            Self::Remove { path, inode } => {
                if tree.files.get(path) == Some(inode) {
                    tree.files.remove(path);
                }
            }
            Self::CreateDir { path } => {
                tree.dirs.insert(path.clone());
            }
        }
    }
}
