//! Promises of the whole engine and the chain, against reference models. Suites that measure a
//! process, or end one, stay programs of their own.

mod interleaving;
mod small_database;

mod access_lists;
mod chain_index;
mod claimed_roots;
mod client_proofs;
mod concurrency;
mod counters;
mod damage;
mod dependency_table;
mod engine;
mod entries;
mod entry_engine;
mod every_operation;
mod executors;
mod facade;
mod following;
mod history;
mod imports;
mod index;
mod inserted_blocks;
mod kept_blocks;
mod large_storages;
mod layered;
mod loader;
mod long_values;
mod metrics;
mod module_order;
mod networks;
mod partial;
mod partial_chain;
mod promises;
mod promises_after_errors;
mod promises_blocks;
mod promises_lost_blocks;
mod promises_records;
mod promises_repairs;
mod racing_readers;
mod read_ahead;
mod readers;
mod rebuild;
mod revm_changes;
mod unverified_blocks;
mod workloads;
