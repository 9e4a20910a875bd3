//! The program as its users run it. Suites that end processes and devices stay programs of their own.

#[macro_use]
mod support;

mod bad_disk;
mod bad_input;
mod cli;
mod cluster;
mod configuration;
mod containers;
mod dump;
mod executors;
mod folders;
mod heads;
mod history;
mod index;
mod kept_blocks;
mod kv;
mod layered;
mod mistakes;
mod partial;
mod preimages;
mod public_data;
mod readers;
mod regions;
mod repairs;
mod serve;
mod clients;
mod setup;
mod spans;
mod usage;
