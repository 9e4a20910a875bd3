//! Blocks, files of blocks and genesis files, without the program.

mod support;

mod drafts;
mod dump;
mod era1;
mod files;
mod genesis;
mod headers;
mod preimages;
