//! The disks: the real ones, the faulty one, and one that is read for a repair.

mod disks;
mod faults;
mod repairs;
