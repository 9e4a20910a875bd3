/* Cambium: the key-value store, and states and proofs of chains.
 *
 * Made by cbindgen from crates/capi: change that, and make this anew with
 *     CAMBIUM_WRITE_HEADER=1 cargo test -p cambium-capi --test header
 *
 * Rules for every function:
 *
 * - Keys, roots and hashes are 32 bytes, addresses 20. All other memory has a length beside it. It is
 *   the caller's, is read during the call alone, and is copied where it is kept.
 * - A function that can fail returns a status. It writes its results only if that is CAMBIUM_STATUS_OK;
 *   with CAMBIUM_STATUS_NOT_FOUND it writes what its comment says. It fills `error` only if it fails;
 *   `error` may be null.
 * - A null handle, or a null pointer to a result, is CAMBIUM_STATUS_INVALID_ARGUMENT, unless the comment
 *   says what null means.
 * - Who gets a handle or a CambiumBytes frees it once, by the function that the comment names. Handles
 *   may be freed in any order.
 * - Handles may move between threads. Whether several threads may use one at a time stands at its type.
 */

#ifndef CAMBIUM_H
#define CAMBIUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * Size of the message in a `CambiumError`, in bytes, with the NUL at its end.
 */
#define CAMBIUM_MESSAGE_BYTES 1024

/**
 * What became of a call, by what its caller does about it.
 */
typedef enum {
  /**
   * It is done.
   */
  CAMBIUM_STATUS_OK = 0,
  /**
   * There is no entry, no account, or no further entry. Not a failure: there is no message.
   */
  CAMBIUM_STATUS_NOT_FOUND = 1,
  /**
   * The transaction lost against another one, or is too old to be validated. Nothing of it was
   * written: run it again from its beginning.
   */
  CAMBIUM_STATUS_CONFLICT = 2,
  /**
   * A null pointer, an impossible length or value, or handles that do not belong together. Nothing
   * was done.
   */
  CAMBIUM_STATUS_INVALID_ARGUMENT = 3,
  /**
   * The commit or block does not exist, or is not kept any more.
   */
  CAMBIUM_STATUS_NOT_KEPT = 4,
  /**
   * There is no database, there is one already, another process has it open, or it is of another
   * kind or version.
   */
  CAMBIUM_STATUS_UNAVAILABLE = 5,
  /**
   * A write through a handle that was opened read-only.
   */
  CAMBIUM_STATUS_READ_ONLY = 6,
  /**
   * The disk failed. After a failed write the store refuses further commits until it is opened
   * again; what was committed before is safe.
   */
  CAMBIUM_STATUS_IO = 7,
  /**
   * Data on the disk is damaged; the message names the file and says what to do.
   */
  CAMBIUM_STATUS_DAMAGED = 8,
  /**
   * The proof does not show what it claims.
   */
  CAMBIUM_STATUS_BAD_PROOF = 9,
  /**
   * A bug in the library. Close the handle and open it again.
   */
  CAMBIUM_STATUS_PANIC = 10,
} CambiumStatus;

/**
 * What roots commit to, and how entries are hashed into them.
 */
typedef enum {
  /**
   * A binary trie, hashed by BLAKE3.
   */
  CAMBIUM_COMMITMENT_BINARY_BLAKE3 = 0,
  /**
   * A binary trie, hashed by SHA-256.
   */
  CAMBIUM_COMMITMENT_BINARY_SHA256 = 1,
  /**
   * Ethereum's Merkle Patricia trie, hashed by Keccak-256.
   */
  CAMBIUM_COMMITMENT_MPT = 2,
  /**
   * The root of three tries: recent changes, those before them, and an older state. It needs
   * `merge_interval_commits`.
   */
  CAMBIUM_COMMITMENT_LAYERED = 3,
} CambiumCommitment;

/**
 * Puts and deletions that are written together. Of several for one key the last counts. One thread at
 * a time may use a batch.
 */
typedef struct CambiumBatch CambiumBatch;

/**
 * A chain's database, open for reading. Any number of threads may use one handle at the same time,
 * except in `cambium_chain_catch_up` and `cambium_chain_close`.
 */
typedef struct CambiumChain CambiumChain;

/**
 * A position in a range of a transaction's entries. One thread at a time may use a cursor. It does not
 * keep its transaction: that may be written to, committed or aborted before the cursor is freed.
 */
typedef struct CambiumCursor CambiumCursor;

/**
 * All entries of a range, with the proof that there are no others. It never changes: any number of
 * threads may read it.
 */
typedef struct CambiumRangeProof CambiumRangeProof;

/**
 * The state of a chain after one block. It never changes: any number of threads may use one handle at
 * the same time, until it is freed.
 */
typedef struct CambiumState CambiumState;

/**
 * An open store. Any number of threads may use one handle at the same time, until it is closed.
 */
typedef struct CambiumStore CambiumStore;

/**
 * A transaction. Threads may share it for reads; while one writes to it, commits it or aborts it, no
 * other may use it.
 */
typedef struct CambiumTransaction CambiumTransaction;

/**
 * Bytes of the library: a value, a proof or a code. Free it with `cambium_bytes_free`.
 *
 * A caller may also make one of its own memory, with `owner` null, to pass it to a function that
 * reads it; freeing that one does nothing.
 */
typedef struct {
  /**
   * The bytes; null if there is no value. An empty value is not null.
   */
  const uint8_t *data;
  /**
   * Number of bytes.
   */
  size_t len;
  /**
   * What keeps the bytes in memory; null if the caller does. For the library alone.
   */
  void *owner;
} CambiumBytes;

/**
 * Says what went wrong. The caller provides it, on the stack for example: nothing has to be freed.
 * It is written only if a call fails.
 */
typedef struct {
  /**
   * The status that the call returned.
   */
  CambiumStatus status;
  /**
   * What is wrong, where, and what to do: UTF-8, with a NUL at the end, shortened to fit.
   */
  char message[CAMBIUM_MESSAGE_BYTES];
} CambiumError;

/**
 * A commit: a state of the store with its root.
 */
typedef struct {
  /**
   * One more than the commit before. The empty store is commit 0.
   */
  uint64_t number;
  /**
   * Keccak-256 hash of number, parent and root, by which the commit is known.
   */
  uint8_t hash[32];
  /**
   * The root of all entries after it.
   */
  uint8_t root[32];
} CambiumCommit;

/**
 * What a range proof shows.
 */
typedef struct {
  /**
   * First key of the range that is proved.
   */
  uint8_t first[32];
  /**
   * Last key of the range that is proved: less than what was asked for if the limit was reached.
   */
  uint8_t last[32];
  /**
   * Number of entries.
   */
  size_t count;
  /**
   * Whether there are further entries in what was asked for: ask again from the key after `last`.
   * This is a hint, and not proved.
   */
  bool more;
  /**
   * The proof. It is the range proof's, and freed with it.
   */
  CambiumBytes proof;
} CambiumRangeSummary;

/**
 * An entry of a range: to read, or to verify.
 */
typedef struct {
  /**
   * The key of the entry, at which ranges begin and end.
   */
  uint8_t key[32];
  /**
   * The value. Not null.
   */
  CambiumBytes value;
} CambiumEntry;

/**
 * Options of a store. All zero are the defaults.
 */
typedef struct {
  /**
   * Memory budget of the whole store, in bytes; 0 for 1 GiB.
   */
  uint64_t memory_bytes;
  /**
   * Number of commits that can be rolled back and read; 0 for all.
   */
  uint64_t keep_commits;
  /**
   * Part of `memory_bytes` for the keys of the newest commits, in bytes; 0 for a sixteenth. A
   * transaction that began before these is `CAMBIUM_STATUS_CONFLICT`.
   */
  uint64_t conflict_window_bytes;
  /**
   * A `CambiumCommitment` for a new store. An existing one keeps its own, whatever is said here.
   */
  uint32_t commitment;
  /**
   * Number of commits of an interval of a new store, if the commitment is
   * `CAMBIUM_COMMITMENT_LAYERED`, and ignored if it is another one. An existing store keeps its own.
   */
  uint32_t merge_interval_commits;
} CambiumOptions;

/**
 * A block, by number and hash.
 */
typedef struct {
  /**
   * Height of the block.
   */
  uint64_t number;
  /**
   * Hash of its header.
   */
  uint8_t hash[32];
} CambiumBlock;

/**
 * The fields of an account.
 */
typedef struct {
  /**
   * Number of transactions sent, or of contracts created by a contract.
   */
  uint64_t nonce;
  /**
   * Balance in wei, big-endian.
   */
  uint8_t balance[32];
  /**
   * Keccak-256 hash of the code: that of no bytes if there is none.
   */
  uint8_t code_hash[32];
} CambiumAccount;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns the name of a status, such as `conflict`, for logs. The string is static. A number that is
 * no status has the name `unknown`. Any thread may call it.
 */
const char *cambium_status_name(uint32_t status);

/**
 * Frees bytes, and empties the structure: freeing it again does nothing. Null is ignored. Any thread
 * may free bytes; a transaction or a store may be gone by then.
 */
void cambium_bytes_free(CambiumBytes *bytes);

/**
 * Frees `count` bytes that stand one after the other, as `cambium_transaction_get_many` writes them.
 * Null is ignored. Any thread may free bytes.
 */
void cambium_bytes_free_many(CambiumBytes *bytes,
                             size_t count);

/**
 * Creates an empty batch. Free it with `cambium_batch_free`. Null only if memory is exhausted.
 */
CambiumBatch *cambium_batch_new(void);

/**
 * Sets the value at `key` (32 bytes) to the `value_len` bytes at `value`, which are copied. The empty
 * value is a value.
 *
 * Fails with `CAMBIUM_STATUS_INVALID_ARGUMENT` above `cambium_value_bytes_max`.
 */
CambiumStatus cambium_batch_put(CambiumBatch *batch,
                                const uint8_t *key,
                                const uint8_t *value,
                                size_t value_len,
                                CambiumError *error);

/**
 * Removes the entry at `key` (32 bytes), if there is one.
 */
CambiumStatus cambium_batch_delete(CambiumBatch *batch, const uint8_t *key, CambiumError *error);

/**
 * Returns the number of keys that the batch writes; 0 for null.
 */
size_t cambium_batch_len(const CambiumBatch *batch);

/**
 * Removes all writes from the batch. Null is ignored.
 */
void cambium_batch_clear(CambiumBatch *batch);

/**
 * Frees the batch, with writes that were not written. Null is ignored.
 */
void cambium_batch_free(CambiumBatch *batch);

/**
 * Writes the commit whose entries the transaction reads, with the root, without its own writes.
 */
CambiumStatus cambium_transaction_snapshot(const CambiumTransaction *transaction,
                                           CambiumCommit *commit,
                                           CambiumError *error);

/**
 * Reads the value at `key` (32 bytes): the transaction's own, if it has written one. Free it with
 * `cambium_bytes_free`. `CAMBIUM_STATUS_NOT_FOUND`, with null data, if there is no entry. The key counts as
 * read, present or not.
 *
 * Fails with `CAMBIUM_STATUS_IO` or `CAMBIUM_STATUS_DAMAGED`.
 */
CambiumStatus cambium_transaction_get(const CambiumTransaction *transaction,
                                      const uint8_t *key,
                                      CambiumBytes *value,
                                      CambiumError *error);

/**
 * Reads the values at `count` keys, 32 bytes each, one after the other, with all reads of the disk in
 * flight at once. Writes `count` values to `values`, in the order of the keys, with null data where
 * there is no entry. Free them with `cambium_bytes_free_many`. The keys count as read.
 *
 * Fails with `CAMBIUM_STATUS_IO` or `CAMBIUM_STATUS_DAMAGED`; nothing is written to `values` then.
 */
CambiumStatus cambium_transaction_get_many(const CambiumTransaction *transaction,
                                           const uint8_t *keys,
                                           size_t count,
                                           CambiumBytes *values,
                                           CambiumError *error);

/**
 * Sets the value at `key` (32 bytes) to the `value_len` bytes at `value`, which are copied. The empty
 * value is a value.
 *
 * Fails with `CAMBIUM_STATUS_INVALID_ARGUMENT` above `cambium_value_bytes_max`.
 */
CambiumStatus cambium_transaction_put(CambiumTransaction *transaction,
                                      const uint8_t *key,
                                      const uint8_t *value,
                                      size_t value_len,
                                      CambiumError *error);

/**
 * Removes the entry at `key` (32 bytes), if there is one. That it is there does not count as read.
 */
CambiumStatus cambium_transaction_delete(CambiumTransaction *transaction,
                                         const uint8_t *key,
                                         CambiumError *error);

/**
 * Adds the writes of a batch to the transaction, and empties the batch.
 */
CambiumStatus cambium_transaction_write(CambiumTransaction *transaction,
                                        CambiumBatch *batch,
                                        CambiumError *error);

/**
 * Commits the transaction, and frees it, whatever the outcome. When this returns `CAMBIUM_STATUS_OK`, the
 * commit survives a loss of power. A transaction without writes makes no commit, and writes its
 * snapshot. `commit` may be null.
 *
 * Fails with `CAMBIUM_STATUS_CONFLICT` if what it read was written since, or if its snapshot is too old or was
 * rolled back: nothing of it was written, run it again. `CAMBIUM_STATUS_IO`: the store refuses further
 * commits until it is opened again. `CAMBIUM_STATUS_READ_ONLY`.
 */
CambiumStatus cambium_transaction_commit(CambiumTransaction *transaction,
                                         CambiumCommit *commit,
                                         CambiumError *error);

/**
 * Aborts the transaction and frees it: nothing of it is written. Null is ignored.
 */
void cambium_transaction_abort(CambiumTransaction *transaction);

/**
 * Creates a cursor before the entries from `first` through `last` (32 bytes each), both included; null
 * begins at the first key, or ends at the last. Free it with `cambium_cursor_free`.
 *
 * Fails with `CAMBIUM_STATUS_INVALID_ARGUMENT` if the range ends before it begins.
 */
CambiumStatus cambium_cursor_new(const CambiumTransaction *transaction,
                                 const uint8_t *first,
                                 const uint8_t *last,
                                 CambiumCursor **cursor,
                                 CambiumError *error);

/**
 * Moves to the next entry, and writes its key (32 bytes) and its value; `CAMBIUM_STATUS_NOT_FOUND`, with null
 * data, after the last one. Free the value with `cambium_bytes_free`. The transaction must be the one
 * of the cursor, or one of the same snapshot. What it has written ahead of the cursor is visited, too.
 * Up to the entry the range counts as read: one that another transaction adds there is a conflict.
 *
 * Fails with `CAMBIUM_STATUS_INVALID_ARGUMENT` for a transaction of another snapshot, `CAMBIUM_STATUS_IO` or
 * `CAMBIUM_STATUS_DAMAGED`; there are no more entries after the last two.
 */
CambiumStatus cambium_cursor_next(CambiumCursor *cursor,
                                  const CambiumTransaction *transaction,
                                  uint8_t *key,
                                  CambiumBytes *value,
                                  CambiumError *error);

/**
 * Frees the cursor. Null is ignored.
 */
void cambium_cursor_free(CambiumCursor *cursor);

/**
 * Proves the values at `count` keys (32 bytes each, one after the other) against the root of the
 * transaction's snapshot, or that there are none. Writes the proof, which is freed with
 * `cambium_bytes_free`, and `count` values as `cambium_transaction_get_many` does, unless `values` is
 * null. The keys count as read. The transaction's own writes have no root, and are not looked at.
 *
 * Fails with `CAMBIUM_STATUS_IO` or `CAMBIUM_STATUS_DAMAGED`.
 */
CambiumStatus cambium_transaction_prove(const CambiumTransaction *transaction,
                                        const uint8_t *keys,
                                        size_t count,
                                        CambiumBytes *values,
                                        CambiumBytes *proof,
                                        CambiumError *error);

/**
 * Verifies that the entries of a root (32 bytes) have `values` at `count` keys (32 bytes each), where
 * null data claims that there is no entry. `commitment_number` is the store's `CambiumCommitment`.
 * Needs no store; any thread may call it.
 *
 * Fails with `CAMBIUM_STATUS_BAD_PROOF` if the proof does not show that; the message says why.
 */
CambiumStatus cambium_verify(const uint8_t *root,
                             uint32_t commitment_number,
                             const uint8_t *keys,
                             const CambiumBytes *values,
                             size_t count,
                             const uint8_t *proof,
                             size_t proof_len,
                             CambiumError *error);

/**
 * Proves the entries from `first` through `last` (32 bytes each, or null for the ends) against the root
 * of the transaction's snapshot, `limit` of them at most, and that there are no others. Free the range
 * proof with `cambium_range_proof_free`. What is proved counts as read. The transaction's own writes
 * have no root, and are not looked at.
 *
 * Fails with `CAMBIUM_STATUS_INVALID_ARGUMENT` for a limit of 0 or a range that ends before it begins,
 * `CAMBIUM_STATUS_IO` or `CAMBIUM_STATUS_DAMAGED`.
 */
CambiumStatus cambium_transaction_prove_range(const CambiumTransaction *transaction,
                                              const uint8_t *first,
                                              const uint8_t *last,
                                              size_t limit,
                                              CambiumRangeProof **range_proof,
                                              CambiumError *error);

/**
 * Writes what the range proof shows.
 */
CambiumStatus cambium_range_proof_summary(const CambiumRangeProof *range_proof,
                                          CambiumRangeSummary *summary,
                                          CambiumError *error);

/**
 * Writes the entry at a position below `count`, in the order of keys. Its value is the range proof's,
 * and freed with it.
 *
 * Fails with `CAMBIUM_STATUS_INVALID_ARGUMENT` for a position that is too large.
 */
CambiumStatus cambium_range_proof_entry(const CambiumRangeProof *range_proof,
                                        size_t position,
                                        CambiumEntry *entry,
                                        CambiumError *error);

/**
 * Frees the range proof. Null is ignored.
 */
void cambium_range_proof_free(CambiumRangeProof *range_proof);

/**
 * Verifies that a root (32 bytes) has the `count` entries from `first` through `last` (32 bytes each,
 * or null for the ends), and no others. `commitment_number` is the store's `CambiumCommitment`. Needs
 * no store; any thread may call it.
 *
 * Fails with `CAMBIUM_STATUS_BAD_PROOF` if the proof does not show that; the message says why.
 */
CambiumStatus cambium_verify_range(const uint8_t *root,
                                   uint32_t commitment_number,
                                   const uint8_t *first,
                                   const uint8_t *last,
                                   const CambiumEntry *entries,
                                   size_t count,
                                   const uint8_t *proof,
                                   size_t proof_len,
                                   CambiumError *error);

/**
 * Returns the version of the library, as `0.1.0`. The string is static. Any thread may call it.
 */
const char *cambium_version(void);

/**
 * Returns the length of the longest value, in bytes. Any thread may call it.
 */
size_t cambium_value_bytes_max(void);

/**
 * Creates an empty store in a directory, which must be empty or not exist, and opens it. `directory` is
 * UTF-8 with a NUL at its end. `options` may be null for the defaults. Close it with
 * `cambium_store_close`.
 *
 * Fails with `CAMBIUM_STATUS_UNAVAILABLE` if there is a database already, and `CAMBIUM_STATUS_IO`.
 */
CambiumStatus cambium_store_create(const char *directory,
                                   const CambiumOptions *options,
                                   CambiumStore **store,
                                   CambiumError *error);

/**
 * Creates an empty store in memory: for tests, and for what need not last. Closing it loses it.
 * Otherwise as `cambium_store_create`.
 */
CambiumStatus cambium_store_create_in_memory(const CambiumOptions *options,
                                             CambiumStore **store,
                                             CambiumError *error);

/**
 * Opens the store in a directory for reading and writing, at its newest commit: one process at a time
 * may do so. `directory` is UTF-8 with a NUL at its end. `options` may be null for the defaults. Close it
 * with `cambium_store_close`.
 *
 * Fails with `CAMBIUM_STATUS_UNAVAILABLE` if there is no store, if it is a chain's database, or if another
 * process has it open; `CAMBIUM_STATUS_DAMAGED`; `CAMBIUM_STATUS_IO`.
 */
CambiumStatus cambium_store_open(const char *directory,
                                 const CambiumOptions *options,
                                 CambiumStore **store,
                                 CambiumError *error);

/**
 * Opens the store in a directory for reading alone, at its newest commit, whether or not another
 * process writes to it. Commits fail with `CAMBIUM_STATUS_READ_ONLY`. Otherwise as `cambium_store_open`.
 */
CambiumStatus cambium_store_open_read_only(const char *directory,
                                           const CambiumOptions *options,
                                           CambiumStore **store,
                                           CambiumError *error);

/**
 * Closes the store. Transactions and bytes of it stay valid; its files are released with the last of
 * them. Null is ignored. No thread may use the handle during the call or after it.
 */
void cambium_store_close(CambiumStore *store);

/**
 * Writes the number of the store's `CambiumCommitment`.
 *
 * Fails with `CAMBIUM_STATUS_INVALID_ARGUMENT` if it was created from Rust with a hash function of its own.
 */
CambiumStatus cambium_store_commitment(const CambiumStore *store,
                                       uint32_t *commitment,
                                       CambiumError *error);

/**
 * Writes the newest commit, with the root.
 */
CambiumStatus cambium_store_newest(const CambiumStore *store,
                                   CambiumCommit *commit,
                                   CambiumError *error);

/**
 * Finds the newest commit whose root is `root` (32 bytes), looking back as far as commits are kept.
 *
 * Fails with `CAMBIUM_STATUS_NOT_KEPT` if there is none.
 */
CambiumStatus cambium_store_commit_with_root(const CambiumStore *store,
                                             const uint8_t *root,
                                             CambiumCommit *commit,
                                             CambiumError *error);

/**
 * Reads the value at `key` (32 bytes) at the newest commit. Free it with `cambium_bytes_free`.
 * `CAMBIUM_STATUS_NOT_FOUND`, with null data, if there is no entry.
 *
 * Fails with `CAMBIUM_STATUS_IO` or `CAMBIUM_STATUS_DAMAGED`.
 */
CambiumStatus cambium_store_get(const CambiumStore *store,
                                const uint8_t *key,
                                CambiumBytes *value,
                                CambiumError *error);

/**
 * Writes the batch as one commit, whatever was there before, and empties it. When this returns, the
 * commit survives a loss of power. An empty batch makes no commit. `commit` may be null.
 *
 * Fails with `CAMBIUM_STATUS_IO`, after which the store refuses further commits until it is opened again, or
 * with `CAMBIUM_STATUS_READ_ONLY`. The batch is empty then, too.
 */
CambiumStatus cambium_store_write(const CambiumStore *store,
                                  CambiumBatch *batch,
                                  CambiumCommit *commit,
                                  CambiumError *error);

/**
 * Takes the newest `commits` commits back, durably, and writes what is the newest then. Transactions
 * that began on what is gone can still read it. `commit` may be null.
 *
 * Fails with `CAMBIUM_STATUS_NOT_KEPT` if there are fewer, or if they are not kept; `CAMBIUM_STATUS_IO`;
 * `CAMBIUM_STATUS_READ_ONLY`.
 */
CambiumStatus cambium_store_roll_back(const CambiumStore *store,
                                      uint64_t commits,
                                      CambiumCommit *commit,
                                      CambiumError *error);

/**
 * Merges all commits into pages, and waits until that is durable: the next opening has nothing to
 * replay then. Commits are durable without it.
 *
 * Fails with `CAMBIUM_STATUS_IO` or `CAMBIUM_STATUS_READ_ONLY`.
 */
CambiumStatus cambium_store_flush(const CambiumStore *store, CambiumError *error);

/**
 * Begins a transaction at the newest commit. End it with `cambium_transaction_commit` or
 * `cambium_transaction_abort`.
 */
CambiumStatus cambium_store_begin(const CambiumStore *store,
                                  CambiumTransaction **transaction,
                                  CambiumError *error);

/**
 * Begins a transaction at the commit of this number: to read what was there, or to write if nothing
 * that it reads has changed since. Otherwise as `cambium_store_begin`.
 *
 * Fails with `CAMBIUM_STATUS_NOT_KEPT` if there is no such commit, or if it is not kept.
 */
CambiumStatus cambium_store_begin_at(const CambiumStore *store,
                                     uint64_t number,
                                     CambiumTransaction **transaction,
                                     CambiumError *error);

/**
 * Opens the database of a chain in a directory at its newest block, whether or not another process
 * writes to it. `directory` is UTF-8 with a NUL at its end; `memory_bytes` is the memory budget, 0 for
 * 1 GiB. Close it with `cambium_chain_close`.
 *
 * Fails with `CAMBIUM_STATUS_UNAVAILABLE` if there is no database, `CAMBIUM_STATUS_INVALID_ARGUMENT` if it is a
 * key-value store, `CAMBIUM_STATUS_DAMAGED` or `CAMBIUM_STATUS_IO`.
 */
CambiumStatus cambium_chain_open(const char *directory,
                                 uint64_t memory_bytes,
                                 CambiumChain **chain,
                                 CambiumError *error);

/**
 * Closes the database. States of it stay valid; its files are released with the last of them. Null is
 * ignored. No thread may use the handle during the call or after it.
 */
void cambium_chain_close(CambiumChain *chain);

/**
 * Writes the newest block that this handle has seen.
 */
CambiumStatus cambium_chain_head(const CambiumChain *chain,
                                 CambiumBlock *block,
                                 CambiumError *error);

/**
 * Moves to the newest block that was written, and writes it, unless `block` is null. States that were
 * made before stay as they are. No other thread may use the handle meanwhile.
 *
 * Fails with `CAMBIUM_STATUS_DAMAGED` or `CAMBIUM_STATUS_IO`; the handle is at its old block then, or at a later one.
 */
CambiumStatus cambium_chain_catch_up(CambiumChain *chain,
                                     CambiumBlock *block,
                                     CambiumError *error);

/**
 * Writes the state at the head. Free it with `cambium_state_free`.
 */
CambiumStatus cambium_chain_state(const CambiumChain *chain,
                                  CambiumState **state,
                                  CambiumError *error);

/**
 * Writes the state after the canonical block of this number: from an archive, or else from the block
 * log, or else from a history of values, which has no proofs. Free it with `cambium_state_free`.
 *
 * Fails with `CAMBIUM_STATUS_NOT_KEPT` if there is no such block, or if its state is not kept.
 */
CambiumStatus cambium_chain_state_at(const CambiumChain *chain,
                                     uint64_t number,
                                     CambiumState **state,
                                     CambiumError *error);

/**
 * Writes the block whose state this is.
 */
CambiumStatus cambium_state_block(const CambiumState *state,
                                  CambiumBlock *block,
                                  CambiumError *error);

/**
 * Writes the state root (32 bytes).
 *
 * Fails with `CAMBIUM_STATUS_NOT_KEPT` for a state of a history without proofs, `CAMBIUM_STATUS_DAMAGED` or
 * `CAMBIUM_STATUS_IO`.
 */
CambiumStatus cambium_state_root(const CambiumState *state,
                                 uint8_t *root,
                                 CambiumError *error);

/**
 * Reads the account at an address (20 bytes). `CAMBIUM_STATUS_NOT_FOUND` if it does not exist.
 *
 * Fails with `CAMBIUM_STATUS_DAMAGED` or `CAMBIUM_STATUS_IO`.
 */
CambiumStatus cambium_state_account(const CambiumState *state,
                                    const uint8_t *address,
                                    CambiumAccount *account,
                                    CambiumError *error);

/**
 * Reads a slot (its number as 32 bytes, big-endian) of the account at an address (20 bytes), and writes
 * its value (32 bytes, big-endian): zero if it is not set.
 *
 * Fails with `CAMBIUM_STATUS_DAMAGED` or `CAMBIUM_STATUS_IO`.
 */
CambiumStatus cambium_state_slot(const CambiumState *state,
                                 const uint8_t *address,
                                 const uint8_t *slot,
                                 uint8_t *value,
                                 CambiumError *error);

/**
 * Reads the code with a Keccak-256 hash (32 bytes), as `CambiumAccount` has it. Free it with
 * `cambium_bytes_free`.
 *
 * Fails with `CAMBIUM_STATUS_DAMAGED` if no account of the database has or had this code, or `CAMBIUM_STATUS_IO`.
 */
CambiumStatus cambium_state_code(const CambiumState *state,
                                 const uint8_t *code_hash,
                                 CambiumBytes *code,
                                 CambiumError *error);

/**
 * Proves the account at an address (20 bytes), or that there is none, and `slot_count` of its slots (32
 * bytes each, one after the other). Writes the proof as `eth_getProof` responds (EIP-1186): JSON in
 * UTF-8, without a NUL. Free it with `cambium_bytes_free`.
 *
 * Fails with `CAMBIUM_STATUS_NOT_KEPT` for a state of a history without proofs, `CAMBIUM_STATUS_UNAVAILABLE` under
 * the commitment `layered`, `CAMBIUM_STATUS_DAMAGED` or `CAMBIUM_STATUS_IO`.
 */
CambiumStatus cambium_state_prove(const CambiumState *state,
                                  const uint8_t *address,
                                  const uint8_t *slots,
                                  size_t slot_count,
                                  CambiumBytes *proof,
                                  CambiumError *error);

/**
 * Frees the state. Null is ignored.
 */
void cambium_state_free(CambiumState *state);

/**
 * Verifies a response of `eth_getProof` (JSON of `proof_len` bytes) against a state root (32 bytes).
 * The response must be about `address` (20 bytes) and about exactly `slot_count` slots (32 bytes each),
 * in their order. Writes the account, and the values of the slots (32 bytes each, big-endian);
 * `CAMBIUM_STATUS_NOT_FOUND` if the account is proved not to exist, with all values zero. Needs no database;
 * any thread may call it.
 *
 * Fails with `CAMBIUM_STATUS_BAD_PROOF` if the proof does not show that; the message says why.
 */
CambiumStatus cambium_verify_account(const uint8_t *root,
                                     const uint8_t *address,
                                     const uint8_t *slots,
                                     size_t slot_count,
                                     const uint8_t *proof,
                                     size_t proof_len,
                                     CambiumAccount *account,
                                     uint8_t *slot_values,
                                     CambiumError *error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* CAMBIUM_H */
