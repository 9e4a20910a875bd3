//! Rounds of clients and a builder: clients run a block's transactions on the newest state and submit them, the builder makes a block of
//! them and appends it to a stream. What each step takes is measured.

use super::genesis::Genesis;
use alloy_consensus::Header;
use alloy_primitives::{Address, Bytes};
use cambium_chain::Transaction;
use cambium_cluster::{
    AppendError, Builder, BuilderHost, BuilderKeys, BuilderOptions, BuilderProcess, Built,
    Incomplete, Publisher, Reader, Record, Shards, Signer, Stream, StreamBounds, StreamError,
    StreamPosition, StreamReader, Submission,
};
use cambium_evm::recover_senders;
use cambium_primitives::Changes;
use std::{
    error::Error,
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender},
    },
    thread,
    time::{Duration, Instant},
};

/// Nodes at depths below are kept by clients and by the builder.
const LEVEL: u8 = 4;
/// Longest time for servers that have only started.
const START: Duration = Duration::from_secs(120);

/// The signer of all blocks.
pub(super) fn signer(genesis: &Genesis) -> Result<Signer, Box<dyn Error>> {
    Ok(Signer::new(genesis.spec.chain_id, [7; 32])?)
}

/// Tries until servers that have only started answer.
pub(super) fn eventually<T, E: Error + 'static>(
    mut attempt: impl FnMut() -> Result<T, E>,
) -> Result<T, Box<dyn Error>> {
    let began = Instant::now();
    loop {
        match attempt() {
            Ok(value) => return Ok(value),
            Err(error) if began.elapsed() > START => return Err(error.into()),
            Err(_) => thread::sleep(Duration::from_millis(200)),
        }
    }
}

/// An append that was acknowledged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Append {
    pub(super) bytes: usize,
    pub(super) began: Instant,
    pub(super) ended: Instant,
}

impl Append {
    pub(super) fn seconds(&self) -> f64 {
        (self.ended - self.began).as_secs_f64()
    }
}

/// A stream that says how long appends take.
#[derive(Debug)]
pub(super) struct Timed<S> {
    inner: S,
    appends: Sender<Append>,
}

impl<S> Timed<S> {
    fn tell(&self, record: &Bytes, began: Instant) {
        // Nobody listens once the rounds are over.
        let _ = self.appends.send(Append {
            bytes: record.len(),
            began,
            ended: Instant::now(),
        });
    }
}

impl<S: Stream> Stream for Timed<S> {
    fn bounds(&self) -> Result<StreamBounds, StreamError> {
        self.inner.bounds()
    }

    fn append(
        &self,
        record: &Bytes,
        id: &str,
        after: StreamPosition,
    ) -> Result<StreamPosition, AppendError> {
        let began = Instant::now();
        let position = self.inner.append(record, id, after)?;
        self.tell(record, began);
        Ok(position)
    }

    fn append_all(
        &self,
        records: &[(Bytes, String)],
        after: StreamPosition,
    ) -> Vec<Result<StreamPosition, AppendError>> {
        let began = Instant::now();
        let answers = self.inner.append_all(records, after);
        for ((record, _), answer) in records.iter().zip(&answers) {
            if answer.is_ok() {
                self.tell(record, began);
            }
        }
        answers
    }

    fn reader(&self, from: StreamPosition) -> Result<Box<dyn StreamReader>, StreamError> {
        self.inner.reader(from)
    }

    fn pause(&self, attempt: u32) {
        self.inner.pause(attempt);
    }
}

/// What a round has taken.
#[derive(Clone, Debug)]
pub(super) struct Round {
    pub(super) transactions: usize,
    /// Until all transactions were submitted.
    pub(super) clients_s: f64,
    /// From then on until the block and its choice were acknowledged.
    pub(super) builder_s: f64,
    /// The appends among that, which are those of the update and of the choice, at once.
    pub(super) stream_s: f64,
}

/// Clients and a builder.
pub(super) struct Rounds<S> {
    genesis: Genesis,
    pub(super) process: Arc<BuilderProcess<Timed<S>>>,
    pub(super) appended: Receiver<Append>,
    clients: Vec<Reader>,
    /// What clients have seen last, and the changes that led there.
    head: Header,
    changes: Option<Changes>,
}

impl<S: Stream + 'static> Rounds<S> {
    /// Opens an epoch in a stream, with a builder on shards, and clients on theirs.
    pub(super) fn new(
        genesis: Genesis,
        shards: Shards,
        of_clients: &Shards,
        clients: usize,
        stream: S,
        epoch: u64,
    ) -> Result<Self, Box<dyn Error>> {
        let signer = signer(&genesis)?;
        let keys = BuilderKeys {
            chain_id: signer.chain_id(),
            keys: vec![signer.address()],
        };
        let (appends, appended) = mpsc::channel();
        let stream = Timed {
            inner: stream,
            appends,
        };
        let mut publisher = Publisher::new(stream, keys, epoch)?;
        let record = Record::from(signer.open_epoch(epoch));
        eventually(|| publisher.publish(&record))?;
        while appended.try_recv().is_ok() {}
        let (spec, head) = (genesis.spec.clone(), genesis.header.clone());
        let reader = Reader::new(shards, &head, LEVEL, 1);
        let builder = Builder::new(reader, spec.clone(), 1, Incomplete::Fetch);
        let options = BuilderOptions {
            beneficiary: head.beneficiary,
            gas_limit: head.gas_limit,
            ..BuilderOptions::default()
        };
        let process = BuilderProcess::new(
            builder,
            head.clone(),
            spec,
            signer,
            publisher,
            epoch,
            options,
        );
        let clients = (0..clients).map(|_| Reader::new(of_clients.clone(), &head, LEVEL, 1));
        Ok(Self {
            genesis,
            process: Arc::new(process),
            appended,
            clients: clients.collect(),
            head,
            changes: None,
        })
    }

    /// A round with these transactions. `submit` hands a submission over to the builder. Transactions that do not get into the block
    /// are an error.
    pub(super) fn round(
        &mut self,
        transactions: &[Transaction],
        submit: &(dyn Fn(Submission) -> Result<(), String> + Sync),
    ) -> Result<(Round, Built), Box<dyn Error>> {
        let senders = recover_senders(transactions, true)?;
        let began = Instant::now();
        self.submit_all(transactions, &senders, submit)?;
        let clients_s = began.elapsed().as_secs_f64();
        let began = Instant::now();
        let (built, left_out) = self.process.build(self.head.timestamp + 12)?;
        let builder_s = began.elapsed().as_secs_f64();
        if let Some(reason) = left_out.first() {
            return Err(reason.clone().into());
        }
        let count = built.block.body.transactions.len();
        if count != transactions.len() {
            return Err(format!("{count} of {} transactions", transactions.len()).into());
        }
        self.head = built.block.header.clone();
        self.changes = Some(built.update.changes.clone());
        let appends = self.appended.try_iter().map(|it| it.seconds());
        let longest = appends.max_by(f64::total_cmp);
        let round = Round {
            transactions: count,
            clients_s,
            builder_s,
            stream_s: longest.unwrap_or(0.0),
        };
        Ok((round, built))
    }

    /// Clients move on to the newest block, run their shares of the transactions, and submit them.
    pub(super) fn submit_all(
        &mut self,
        transactions: &[Transaction],
        senders: &[Address],
        submit: &(dyn Fn(Submission) -> Result<(), String> + Sync),
    ) -> Result<(), Box<dyn Error>> {
        let (spec, head) = (&self.genesis.spec, &self.head);
        let guessed = spec.draft(head, head.hash_slow(), &self.genesis.attributes(head));
        let (guessed, changes) = (&guessed.header, self.changes.as_ref());
        let share = transactions.len().div_ceil(self.clients.len()).max(1);
        let shares = transactions.chunks(share).zip(senders.chunks(share));
        let ran = thread::scope(|scope| {
            let threads = self.clients.iter_mut().zip(shares);
            let threads = threads.map(|(client, (transactions, senders))| {
                scope.spawn(move || {
                    if let Some(changes) = changes {
                        let moved = client.advance(head, changes);
                        moved.map_err(|error| error.to_string())?;
                    }
                    for (transaction, sender) in transactions.iter().zip(senders) {
                        let transaction = transaction.clone();
                        let prepared =
                            Submission::prepare(client, spec, guessed, transaction, *sender, LEVEL);
                        submit(prepared.map_err(|error| error.to_string())?)?;
                    }
                    Ok::<_, String>(())
                })
            });
            let threads: Vec<_> = threads.collect();
            let ended = threads.into_iter().map(|thread| thread.join());
            ended.collect::<Vec<_>>()
        });
        for ended in ran {
            ended.map_err(|_| "a client panics")??;
        }
        Ok(())
    }

    /// Hands a submission to the builder in this process.
    pub(super) fn submit_here(&self) -> impl Fn(Submission) -> Result<(), String> + Sync + use<S> {
        let process = Arc::clone(&self.process);
        move |submission| process.submit(submission)
    }
}

/// Wins an epoch, as a builder does that starts.
pub(super) fn win_epoch(
    nats: &cambium_cluster::Nats,
    genesis: &Genesis,
) -> Result<u64, Box<dyn Error>> {
    let signer = signer(genesis)?;
    let registry = eventually(|| nats.registry())?;
    let won = eventually(|| registry.win_epoch(signer.address(), 0))?;
    Ok(won.ok_or("another builder has won the epoch")?)
}
