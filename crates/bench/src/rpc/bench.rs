//! What all parts share: sizes, programs, chains, remarks.

use super::{
    chains::Chained,
    load::{Load, drive},
    plan::Plan,
    server::{Kind, Programs, Server, Setting},
};
use crate::{report::Notes, state::stores::Failure};

/// A run of the benchmark.
pub(super) struct Bench {
    pub(super) plan: Plan,
    pub(super) programs: Programs,
    pub(super) notes: Notes,
}

impl Bench {
    /// The chain of large blocks. The databases lack those that the Engine API brings.
    pub(super) fn wide(&self) -> Result<Chained, Failure> {
        let plan = &self.plan;
        Chained::of(&plan.data, "rpc-wide", plan.wide(), plan.payloads, "flat")
    }

    /// The chain of many blocks, with an archive.
    pub(super) fn deep(&self) -> Result<Chained, Failure> {
        let plan = &self.plan;
        Chained::of(&plan.data, "rpc-deep", plan.deep(), 0, "archive")
    }

    /// Starts a server of each kind on a chain.
    pub(super) fn serve(&mut self, chain: &Chained) -> Result<Vec<Server>, Failure> {
        let kinds = self.programs.kinds().into_iter();
        kinds.map(|kind| self.serve_by(kind, chain)).collect()
    }

    /// Starts a server of one kind on a chain.
    pub(super) fn serve_by(&mut self, kind: Kind, chain: &Chained) -> Result<Server, Failure> {
        let dir = chain.database(kind, &self.programs, &mut self.notes)?;
        self.programs
            .serve(kind, &dir, chain.head, &Setting::default())
    }

    /// Drives the servers in turns, each round in another order.
    pub(super) fn rounds(
        &self,
        servers: &[Server],
        requests: &[Vec<u8>],
        connections: usize,
        mut add: impl FnMut(Kind, &Load),
    ) -> Result<(), Failure> {
        for round in 0..self.plan.rounds as usize {
            for turn in 0..servers.len() {
                let server = &servers[(round + turn) % servers.len()];
                let load = drive(server, requests, connections, self.plan.window)?;
                add(server.kind, &load);
            }
        }
        Ok(())
    }
}
