//! Servers beside the work of a command: they end with it.

use super::{error::Failure, output::Output};
use cambium_metrics::{MetricsHost, MetricsLimits, MetricsRegistry, MetricsServer};
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    runtime::{Handle, Runtime},
    sync::oneshot,
    task::JoinHandle,
    time::timeout,
};

/// Longest time for a server to end.
const END: Duration = Duration::from_secs(1);

/// A server that runs until this is dropped, which has to be before its runtime is.
pub(crate) struct Beside {
    runtime: Handle,
    /// `None` once it was told to end.
    task: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Beside {
    /// Begins to run a server, which ends once what it is given does.
    pub(crate) fn run<F: Future<Output = ()> + Send + 'static>(
        runtime: &Runtime,
        server: impl FnOnce(oneshot::Receiver<()>) -> F,
    ) -> Self {
        let (end, ended) = oneshot::channel();
        let task = runtime.spawn(server(ended));
        Self {
            runtime: runtime.handle().clone(),
            task: Some((end, task)),
        }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if let Some((end, task)) = self.task.take() {
            let _ = end.send(());
            // What still answers somebody ends by itself.
            let _ = self.runtime.block_on(async { timeout(END, task).await });
        }
    }
}

/// Serves the figures of a process, if an address is given, until the result is dropped.
pub(crate) struct Serving {
    registry: MetricsRegistry,
    #[allow(dead_code, reason = "serves while it lives")]
    server: Option<Beside>,
}

impl Serving {
    /// Begins to serve what a process is: its figures follow with [`Self::add`].
    pub(crate) fn new(
        address: Option<SocketAddr>,
        role: &'static str,
        runtime: &Runtime,
        out: &Output,
    ) -> Result<Self, Failure> {
        let registry = MetricsRegistry::new(role);
        let mut serving = Self {
            registry: registry.clone(),
            server: None,
        };
        let Some(address) = address else {
            return Ok(serving);
        };
        let listening = runtime.block_on(MetricsServer::listen(address));
        let listening = listening.map_err(|error| {
            Failure::serve(format!(
                "--metrics: {address} can't be listened at: {error}"
            ))
        })?;
        let own = listening.address();
        if !own.ip().is_loopback() {
            out.note(format_args!(
                "--metrics: {own} is not the loopback: without encryption and without a password, anyone who reaches it reads the \
                 figures of this process"
            ));
        }
        out.note(format_args!("the figures are at http://{own}/metrics"));
        serving.server = Some(Beside::run(runtime, |ended| {
            listening.run(registry, MetricsLimits::default(), async {
                let _ = ended.await;
            })
        }));
        Ok(serving)
    }

    /// The figures, for a part of the process that shows them.
    #[cfg(feature = "serve")]
    pub(crate) fn registry(&self) -> cambium_metrics::WeakRegistry {
        self.registry.downgrade()
    }

    /// Adds a part of the process.
    pub(crate) fn add(&self, host: Arc<dyn MetricsHost>) {
        self.registry.add(host);
    }
}
