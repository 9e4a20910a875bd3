//! The figures of a process, for systems that collect them: counted where it happens, written as a page, served over HTTP.
//!
//! ```text
//!   a shard, a server of JSON-RPC, ...   count with atomics
//!        | MetricsHost::report
//!        v
//!   MetricsRegistry ---> MetricsPage (text format 0.0.4) ---> MetricsServer: GET /metrics, /health, /ready
//! ```
//!
//! A page is complete before its first byte is sent, so a client that reads slowly holds nothing of the process but the page.
//!
//! | file | content |
//! |---|---|
//! | `tally` | counters by label |
//! | `labelled` | figures with labels, on top of the engine's `Metrics` |
//! | `page` | the text format |
//! | `own` | memory, descriptors and uptime of the process |
//! | `registry` | everything that a process shows |
//! | `server` | HTTP |

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod tally;
mod labelled;
mod page;
mod own;
mod registry;
mod server;

pub use cambium_snapshot::Histogram;
pub use labelled::LabelledMetrics;
pub use page::MetricsPage;
pub use registry::{MetricsHost, MetricsRegistry, WeakRegistry};
pub use server::{MetricsLimits, MetricsServer};
pub use tally::{Count, Tally};
