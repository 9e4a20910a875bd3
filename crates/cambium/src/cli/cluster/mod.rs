//! The commands of a cluster: the state in the memory of several machines.

mod connect;
mod key;
mod members;
mod metrics;
mod init;
mod feed;
mod republish;
mod shard;
mod replicas;
mod status;
mod get;
mod nats_server;
mod up;
mod builder;
mod client;
mod validator;
mod follow;
mod storage;
#[cfg(feature = "serve")]
mod shown;

pub(crate) use follow::follow;
#[cfg(feature = "serve")]
pub(crate) use shown::show;
pub(crate) use storage::storage_of;

use super::{
    args::cluster::{BuilderProcessArgs, ClientArgs, ClusterCommand, ShardArgs, ValidatorArgs},
    error::Failure,
    output::{Output, Report},
};

pub(crate) fn shard(args: &ShardArgs, out: &Output) -> Result<Report, Failure> {
    shard::run(args, out)
}

pub(crate) fn builder(args: &BuilderProcessArgs, out: &Output) -> Result<Report, Failure> {
    builder::run(args, out)
}

pub(crate) fn client(args: &ClientArgs, out: &Output) -> Result<Report, Failure> {
    client::run(args, out)
}

pub(crate) fn validator(args: &ValidatorArgs, out: &Output) -> Result<Report, Failure> {
    validator::run(args, out)
}

pub(crate) fn run(command: &ClusterCommand, out: &Output) -> Result<Report, Failure> {
    match command {
        ClusterCommand::Key(args) => key::run(args),
        ClusterCommand::Init(args) => init::run(args, out),
        ClusterCommand::Feed(args) => feed::run(args, out),
        ClusterCommand::Republish(args) => republish::run(args, out),
        ClusterCommand::Status(args) => status::run(args),
        ClusterCommand::Get(args) => get::run(args),
        ClusterCommand::Up(args) => up::run(args, out),
    }
}
