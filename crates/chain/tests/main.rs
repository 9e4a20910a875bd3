//! Blocks, files of blocks, genesis files and workloads, without the program.

mod support;

mod contracts;
mod dump;
mod era1;
mod files;
mod genesis;
mod headers;
mod preimages;
mod workload;
