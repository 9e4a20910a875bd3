//! Where goes what the engine tells: the log to standard error, and spans to a collector besides.

use super::{
    args::{Args, LogFormat},
    error::Failure,
};
use std::io::{IsTerminal, stderr};
use tracing_subscriber::{
    EnvFilter, Layer, Registry, fmt, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

/// Levels of the log if none are given.
const LEVELS: &str = "warn";

/// Ends with the program: see `spans::Exported`.
#[derive(Default)]
pub(crate) struct Begun {
    #[cfg(feature = "otlp")]
    _exported: Option<spans::Exported>,
}

/// Begins the log, and the export of spans if there is a collector. Levels were checked with the arguments.
pub(crate) fn begin(args: &Args) -> Result<Begun, Failure> {
    let log = tracing_subscriber::registry().with(to_standard_error(&args.log, args.log_format));
    // A variable of the environment may be there, and empty.
    #[cfg(feature = "otlp")]
    if let Some(url) = args.otlp.as_deref().filter(|url| !url.is_empty()) {
        let (spans, exported) = spans::export(url)?;
        log.with(spans).init();
        return Ok(Begun {
            _exported: Some(exported),
        });
    }
    log.init();
    Ok(Begun::default())
}

fn to_standard_error(
    levels: &str,
    format: LogFormat,
) -> Box<dyn Layer<Registry> + Send + Sync + 'static> {
    let levels = EnvFilter::new(if levels.is_empty() { LEVELS } else { levels });
    let log = fmt::layer()
        .with_writer(stderr)
        .with_ansi(stderr().is_terminal())
        // It would report a pipe that is closed to that pipe, and panic.
        .log_internal_errors(false);
    match format {
        LogFormat::Text => log.with_filter(levels).boxed(),
        LogFormat::Json => log.json().with_filter(levels).boxed(),
    }
}

/// Spans on their way to a collector over OTLP.
#[cfg(feature = "otlp")]
mod spans {
    use super::{EnvFilter, Failure, Layer};
    use async_trait::async_trait;
    use opentelemetry::trace::TracerProvider as _;
    use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
    use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
    use opentelemetry_sdk::{Resource, trace::SdkTracerProvider};
    use std::{env, io::Read as _, time::Duration};
    use tracing::Subscriber;
    use tracing_subscriber::registry::LookupSpan;

    /// Cambium's own spans, all of which are of this level.
    const EXPORTED: &str = "off,cambium=debug";
    /// Names the process, and is read by the library that exports.
    const SERVICE_NAME: &str = "OTEL_SERVICE_NAME";

    /// Time for one request to a collector.
    const PATIENCE: Duration = Duration::from_secs(10);
    /// Most bytes that are read of its answer.
    const ANSWER_BYTES: u64 = 64 << 10;

    /// A client that reads no long answer.
    #[derive(Debug)]
    struct Client(reqwest::blocking::Client);

    #[async_trait]
    impl HttpClient for Client {
        async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
            let answer = self.0.execute(request.try_into()?)?.error_for_status()?;
            let status = answer.status();
            let mut body = Vec::new();
            answer.take(ANSWER_BYTES).read_to_end(&mut body)?;
            Ok(Response::builder().status(status).body(body.into())?)
        }
    }

    /// Sends what is left when it is dropped, for at most 5 s.
    pub(super) struct Exported(SdkTracerProvider);

    impl Drop for Exported {
        fn drop(&mut self) {
            // What could not be sent is told in the log.
            let _ = self.0.shutdown();
        }
    }

    /// A layer whose spans go to the collector at `url`, which takes OTLP over HTTP.
    pub(super) fn export<S>(url: &str) -> Result<(impl Layer<S>, Exported), Failure>
    where
        S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
    {
        let wrong = |error: &dyn std::error::Error| Failure::Collector {
            url: url.to_owned(),
            what: error.to_string(),
        };
        let client = reqwest::blocking::Client::builder()
            .timeout(PATIENCE)
            .build();
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(Client(client.map_err(|error| wrong(&error))?))
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(format!("{}/v1/traces", url.trim_end_matches('/')))
            .build()
            .map_err(|error| wrong(&error))?;
        let mut resource = Resource::builder();
        if env::var_os(SERVICE_NAME).is_none() {
            resource = resource.with_service_name("cambium");
        }
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource.build())
            .build();
        let spans = tracing_opentelemetry::layer().with_tracer(provider.tracer("cambium"));
        let spans = spans.with_filter(EnvFilter::new(EXPORTED));
        Ok((spans, Exported(provider)))
    }
}
