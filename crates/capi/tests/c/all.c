/* Calls every function of the header with right and with wrong arguments. See ../c_programs.rs. */
#include <cambium.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static CambiumError error;

#define IS(condition)                                                                   \
  do {                                                                                  \
    if (!(condition)) {                                                                 \
      fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, error.message); \
      exit(EXIT_FAILURE);                                                               \
    }                                                                                   \
  } while (0)
#define OK(call) IS((call) == CAMBIUM_STATUS_OK)
#define GIVES(name, call) IS((call) == CAMBIUM_STATUS_##name)
/* A failure, with the same status and a message in `error`. */
#define FAILS(name, call)                                                     \
  do {                                                                        \
    error.message[0] = 0;                                                     \
    GIVES(name, call);                                                        \
    IS(error.status == CAMBIUM_STATUS_##name && strlen(error.message) > 5);   \
  } while (0)

static const uint8_t one[32] = {1}, two[32] = {2}, three[32] = {3};

static int has(const CambiumBytes *bytes, const char *text) {
  return bytes->data && bytes->len == strlen(text) && memcmp(bytes->data, text, bytes->len) == 0;
}

static void put(CambiumTransaction *transaction, const uint8_t *key, const char *text) {
  OK(cambium_transaction_put(transaction, key, (const uint8_t *)text, strlen(text), &error));
}

static void batches(CambiumStore *store) {
  CambiumBatch *batch = cambium_batch_new();
  CambiumCommit commit;
  CambiumBytes value;
  OK(cambium_batch_put(batch, one, (const uint8_t *)"uno", 3, &error));
  OK(cambium_batch_put(batch, two, NULL, 0, &error));
  OK(cambium_batch_put(batch, three, (const uint8_t *)"tres", 4, &error));
  OK(cambium_batch_delete(batch, three, &error));
  IS(cambium_batch_len(batch) == 3);
  FAILS(INVALID_ARGUMENT, cambium_batch_put(batch, one, NULL, 1, &error));
  FAILS(INVALID_ARGUMENT, cambium_batch_put(batch, one, one, SIZE_MAX, &error));
  FAILS(INVALID_ARGUMENT, cambium_batch_put(batch, NULL, one, 1, &error));
  FAILS(INVALID_ARGUMENT, cambium_batch_put(NULL, one, one, 1, &error));
  FAILS(INVALID_ARGUMENT, cambium_batch_delete(NULL, one, &error));
  uint8_t *large = calloc(cambium_value_bytes_max() + 1, 1);
  FAILS(INVALID_ARGUMENT, cambium_batch_put(batch, one, large, cambium_value_bytes_max() + 1, &error));
  OK(cambium_batch_put(batch, three, large, cambium_value_bytes_max(), &error));
  free(large);
  OK(cambium_batch_delete(batch, three, &error));
  FAILS(INVALID_ARGUMENT, cambium_store_write(store, NULL, &commit, &error));
  OK(cambium_store_write(store, batch, &commit, &error));
  IS(commit.number == 1 && cambium_batch_len(batch) == 0);
  OK(cambium_store_write(store, batch, NULL, &error));
  OK(cambium_store_newest(store, &commit, &error));
  IS(commit.number == 1);
  OK(cambium_store_get(store, one, &value, &error));
  IS(has(&value, "uno"));
  cambium_bytes_free(&value);
  cambium_bytes_free(&value);
  OK(cambium_store_get(store, two, &value, &error));
  IS(value.data && value.len == 0);
  cambium_bytes_free(&value);
  GIVES(NOT_FOUND, cambium_store_get(store, three, &value, &error));
  IS(!value.data);
  FAILS(INVALID_ARGUMENT, cambium_store_get(store, three, NULL, &error));
  GIVES(INVALID_ARGUMENT, cambium_store_get(store, NULL, &value, NULL));
  OK(cambium_batch_delete(batch, one, &error));
  cambium_batch_clear(batch);
  IS(cambium_batch_len(batch) == 0 && cambium_batch_len(NULL) == 0);
  cambium_batch_clear(NULL);
  cambium_batch_free(batch);
  cambium_batch_free(NULL);
}

static void transactions(CambiumStore *store) {
  CambiumTransaction *first, *second;
  CambiumCommit before, commit, found;
  CambiumBytes value, values[3];
  uint8_t keys[96];
  memcpy(keys, three, 32), memcpy(keys + 32, two, 32), memcpy(keys + 64, one, 32);
  FAILS(INVALID_ARGUMENT, cambium_store_begin(store, NULL, &error));
  FAILS(INVALID_ARGUMENT, cambium_store_begin(NULL, &first, &error));
  OK(cambium_store_begin(store, &first, &error));
  OK(cambium_store_begin(store, &second, &error));
  OK(cambium_transaction_snapshot(first, &before, &error));
  GIVES(NOT_FOUND, cambium_transaction_get(first, three, &value, &error));
  GIVES(NOT_FOUND, cambium_transaction_get(second, three, &value, &error));
  put(first, three, "tres");
  put(second, three, "drei");
  OK(cambium_transaction_get_many(first, keys, 3, values, &error));
  IS(has(values, "tres") && has(values + 1, "") && has(values + 2, "uno"));
  cambium_bytes_free_many(values, 3);
  OK(cambium_transaction_get_many(first, NULL, 0, NULL, &error));
  FAILS(INVALID_ARGUMENT, cambium_transaction_get_many(first, keys, 3, NULL, &error));
  FAILS(INVALID_ARGUMENT, cambium_transaction_get_many(first, keys, SIZE_MAX / 8, values, &error));
  OK(cambium_transaction_commit(first, &commit, &error));
  IS(commit.number == before.number + 1 && memcmp(commit.root, before.root, 32) != 0);
  FAILS(CONFLICT, cambium_transaction_commit(second, &commit, &error));
  IS(strstr(error.message, "begin it again"));
  FAILS(INVALID_ARGUMENT, cambium_transaction_commit(NULL, &commit, &error));

  CambiumBatch *batch = cambium_batch_new();
  OK(cambium_batch_put(batch, one, (const uint8_t *)"eins", 4, &error));
  OK(cambium_store_begin(store, &first, &error));
  OK(cambium_transaction_write(first, batch, &error));
  OK(cambium_transaction_delete(first, two, &error));
  cambium_batch_free(batch);
  OK(cambium_transaction_commit(first, NULL, &error));
  OK(cambium_store_begin_at(store, before.number, &first, &error));
  OK(cambium_transaction_get(first, one, &value, &error));
  IS(has(&value, "uno"));
  OK(cambium_transaction_commit(first, &found, &error));
  IS(found.number == before.number);
  IS(has(&value, "uno")); /* Bytes outlive their transaction. */
  cambium_bytes_free(&value);
  FAILS(NOT_KEPT, cambium_store_begin_at(store, 99, &first, &error));
  OK(cambium_store_commit_with_root(store, before.root, &found, &error));
  IS(found.number == before.number && memcmp(found.hash, before.hash, 32) == 0);
  FAILS(NOT_KEPT, cambium_store_commit_with_root(store, one, &found, &error));
  FAILS(NOT_KEPT, cambium_store_roll_back(store, 99, &found, &error));
  OK(cambium_store_roll_back(store, 1, &found, &error));
  IS(found.number == commit.number || found.number == before.number + 1);
  cambium_transaction_abort(NULL);
}

static void cursors(CambiumStore *store) {
  CambiumTransaction *transaction, *other;
  CambiumCursor *cursor;
  CambiumBytes value;
  uint8_t key[32];
  OK(cambium_store_begin(store, &transaction, &error));
  FAILS(INVALID_ARGUMENT, cambium_cursor_new(transaction, two, one, &cursor, &error));
  OK(cambium_cursor_new(transaction, two, NULL, &cursor, &error));
  OK(cambium_cursor_next(cursor, transaction, key, &value, &error));
  IS(memcmp(key, two, 32) == 0 && has(&value, ""));
  cambium_bytes_free(&value);
  put(transaction, three, "own");
  OK(cambium_store_begin_at(store, 0, &other, &error));
  FAILS(INVALID_ARGUMENT, cambium_cursor_next(cursor, other, key, &value, &error));
  FAILS(INVALID_ARGUMENT, cambium_cursor_next(cursor, transaction, NULL, &value, &error));
  cambium_transaction_abort(other);
  OK(cambium_cursor_next(cursor, transaction, key, &value, &error));
  IS(memcmp(key, three, 32) == 0 && has(&value, "own"));
  cambium_bytes_free(&value);
  GIVES(NOT_FOUND, cambium_cursor_next(cursor, transaction, key, &value, &error));
  GIVES(NOT_FOUND, cambium_cursor_next(cursor, transaction, key, &value, &error));
  cambium_transaction_abort(transaction);
  cambium_cursor_free(cursor);
  cambium_cursor_free(NULL);
}

static void proofs(CambiumStore *store, uint32_t commitment) {
  CambiumTransaction *transaction;
  CambiumRangeProof *range;
  CambiumRangeSummary summary;
  CambiumEntry entries[3];
  CambiumCommit commit;
  CambiumBytes values[2], proof;
  uint32_t found;
  uint8_t keys[64], nine[32] = {9};
  memcpy(keys, one, 32), memcpy(keys + 32, nine, 32);
  OK(cambium_store_commitment(store, &found, &error));
  IS(found == commitment);
  OK(cambium_store_begin(store, &transaction, &error));
  OK(cambium_transaction_snapshot(transaction, &commit, &error));
  OK(cambium_transaction_prove(transaction, keys, 2, values, &proof, &error));
  IS(has(values, "uno") && !values[1].data);
  OK(cambium_verify(commit.root, commitment, keys, values, 2, proof.data, proof.len, &error));
  FAILS(BAD_PROOF, cambium_verify(one, commitment, keys, values, 2, proof.data, proof.len, &error));
  FAILS(BAD_PROOF, cambium_verify(commit.root, commitment, keys, values, 2, proof.data, proof.len - 1, &error));
  FAILS(INVALID_ARGUMENT, cambium_verify(commit.root, 4, keys, values, 2, proof.data, proof.len, &error));
  CambiumBytes own[2] = {{(const uint8_t *)"unu", 3, NULL}, {NULL, 0, NULL}};
  FAILS(BAD_PROOF, cambium_verify(commit.root, commitment, keys, own, 2, proof.data, proof.len, &error));
  own[0].data = (const uint8_t *)"uno";
  OK(cambium_verify(commit.root, commitment, keys, own, 2, proof.data, proof.len, &error));
  cambium_bytes_free(&proof);
  cambium_bytes_free_many(values, 2);
  OK(cambium_transaction_prove(transaction, keys, 2, NULL, &proof, &error));
  cambium_bytes_free(&proof);

  FAILS(INVALID_ARGUMENT, cambium_transaction_prove_range(transaction, NULL, NULL, 0, &range, &error));
  OK(cambium_transaction_prove_range(transaction, NULL, NULL, 2, &range, &error));
  OK(cambium_range_proof_summary(range, &summary, &error));
  IS(summary.count == 2 && summary.more && memcmp(summary.last, two, 32) >= 0);
  for (size_t at = 0; at < 2; at++) OK(cambium_range_proof_entry(range, at, &entries[at], &error));
  FAILS(INVALID_ARGUMENT, cambium_range_proof_entry(range, 2, &entries[2], &error));
  IS(has(&entries[0].value, "uno") && has(&entries[1].value, ""));
  proof = summary.proof;
  OK(cambium_verify_range(commit.root, commitment, summary.first, summary.last, entries, 2, proof.data,
                          proof.len, &error));
  FAILS(BAD_PROOF, cambium_verify_range(commit.root, commitment, summary.first, summary.last, entries, 1,
                                        proof.data, proof.len, &error));
  cambium_range_proof_free(range);
  cambium_range_proof_free(NULL);
  cambium_transaction_abort(transaction);
}

/* Reads the store from several threads, on one transaction. */
static void *reader(void *argument) {
  CambiumError own;
  for (int round = 0; round < 1000; round++) {
    CambiumBytes value;
    if (cambium_transaction_get(argument, one, &value, &own) != CAMBIUM_STATUS_OK) return argument;
    cambium_bytes_free(&value);
  }
  return NULL;
}

static void threads(CambiumStore *store) {
  CambiumTransaction *transaction;
  pthread_t readers[4];
  OK(cambium_store_begin(store, &transaction, &error));
  for (int at = 0; at < 4; at++) IS(pthread_create(&readers[at], NULL, reader, transaction) == 0);
  for (int at = 0; at < 4; at++) {
    void *failed;
    IS(pthread_join(readers[at], &failed) == 0 && !failed);
  }
  cambium_transaction_abort(transaction);
}

static void openings(const char *directory) {
  CambiumStore *store, *reader;
  CambiumTransaction *transaction;
  CambiumChain *chain;
  CambiumOptions options = {.memory_bytes = 64 << 20, .commitment = CAMBIUM_COMMITMENT_MPT};
  char path[4096], chains[4096];
  snprintf(path, sizeof path, "%s/store", directory);
  snprintf(chains, sizeof chains, "%s/chain", directory);
  FAILS(UNAVAILABLE, cambium_store_open(path, NULL, &store, &error));
  FAILS(UNAVAILABLE, cambium_store_open_read_only(path, NULL, &store, &error));
  FAILS(UNAVAILABLE, cambium_store_open(chains, NULL, &store, &error));
  FAILS(INVALID_ARGUMENT, cambium_store_open("", NULL, &store, &error));
  FAILS(INVALID_ARGUMENT, cambium_store_open(NULL, NULL, &store, &error));
  FAILS(INVALID_ARGUMENT, cambium_store_create("\xff", NULL, &store, &error));
  FAILS(INVALID_ARGUMENT, cambium_store_create(path, NULL, NULL, &error));
  options.commitment = 4;
  FAILS(INVALID_ARGUMENT, cambium_store_create(path, &options, &store, &error));
  options.commitment = CAMBIUM_COMMITMENT_MPT;
  OK(cambium_store_create(path, &options, &store, &error));
  FAILS(UNAVAILABLE, cambium_store_create(path, &options, &reader, &error));
  FAILS(UNAVAILABLE, cambium_store_open(path, &options, &reader, &error));
  batches(store);
  transactions(store);
  cursors(store);
  proofs(store, CAMBIUM_COMMITMENT_MPT);
  threads(store);
  OK(cambium_store_flush(store, &error));
  OK(cambium_store_open_read_only(path, NULL, &reader, &error));
  proofs(reader, CAMBIUM_COMMITMENT_MPT);
  OK(cambium_store_begin(reader, &transaction, &error));
  put(transaction, one, "eins");
  FAILS(READ_ONLY, cambium_transaction_commit(transaction, NULL, &error));
  cambium_store_close(reader);
  OK(cambium_store_begin(store, &transaction, &error));
  cambium_store_close(store); /* A transaction keeps its store open. */
  put(transaction, three, "three");
  OK(cambium_transaction_commit(transaction, NULL, &error));
  OK(cambium_store_open(path, NULL, &store, &error));
  CambiumBytes value;
  OK(cambium_store_get(store, three, &value, &error));
  IS(has(&value, "three"));
  cambium_bytes_free(&value);
  cambium_store_close(store);
  cambium_store_close(NULL);
  FAILS(INVALID_ARGUMENT, cambium_chain_open(path, 0, &chain, &error));
  FAILS(UNAVAILABLE, cambium_chain_open(directory, 0, &chain, &error));
}

static void chains(const char *directory) {
  CambiumChain *chain;
  CambiumState *state, *old;
  CambiumBlock block;
  CambiumAccount account;
  CambiumBytes code, proof;
  uint8_t alice[20], bob[20], root[32], value[32], slots[64] = {0}, values[64];
  char path[4096];
  memset(alice, 0xa1, 20), memset(bob, 0xb0, 20), slots[63] = 1;
  snprintf(path, sizeof path, "%s/chain", directory);
  OK(cambium_chain_open(path, 64 << 20, &chain, &error));
  OK(cambium_chain_head(chain, &block, &error));
  IS(block.number == 1);
  OK(cambium_chain_catch_up(chain, &block, &error));
  OK(cambium_chain_state(chain, &state, &error));
  OK(cambium_chain_state_at(chain, 0, &old, &error));
  FAILS(NOT_KEPT, cambium_chain_state_at(chain, 2, &state, &error));
  OK(cambium_state_block(old, &block, &error));
  IS(block.number == 0);
  OK(cambium_state_account(old, alice, &account, &error));
  IS(account.nonce == 7 && account.balance[30] == 3 && account.balance[31] == 232);
  cambium_state_free(old);
  cambium_chain_close(chain); /* States keep their database open. */
  cambium_chain_close(NULL);
  OK(cambium_state_account(state, alice, &account, &error));
  IS(account.nonce == 8);
  GIVES(NOT_FOUND, cambium_state_account(state, bob, &account, &error));
  FAILS(INVALID_ARGUMENT, cambium_state_account(state, NULL, &account, &error));
  OK(cambium_state_slot(state, alice, slots, value, &error));
  IS(value[31] == 5);
  OK(cambium_state_slot(state, bob, slots, value, &error));
  IS(value[31] == 0);
  OK(cambium_state_code(state, account.code_hash, &code, &error));
  IS(code.len == 2 && code.data[0] == 0x60);
  cambium_bytes_free(&code);
  OK(cambium_state_root(state, root, &error));
  OK(cambium_state_prove(state, alice, slots, 2, &proof, &error));
  OK(cambium_verify_account(root, alice, slots, 2, proof.data, proof.len, &account, values, &error));
  IS(account.nonce == 8 && values[31] == 5 && values[63] == 0);
  FAILS(BAD_PROOF, cambium_verify_account(root, bob, slots, 2, proof.data, proof.len, &account, values, &error));
  FAILS(BAD_PROOF, cambium_verify_account(root, alice, slots, 1, proof.data, proof.len, &account, values, &error));
  FAILS(BAD_PROOF, cambium_verify_account(slots, alice, slots, 2, proof.data, proof.len, &account, values, &error));
  FAILS(BAD_PROOF, cambium_verify_account(root, alice, slots, 2, proof.data, 9, &account, values, &error));
  cambium_bytes_free(&proof);
  OK(cambium_state_prove(state, bob, NULL, 0, &proof, &error));
  GIVES(NOT_FOUND, cambium_verify_account(root, bob, NULL, 0, proof.data, proof.len, &account, NULL, &error));
  cambium_bytes_free(&proof);
  cambium_state_free(state);
  cambium_state_free(NULL);
}

int main(int argc, char **argv) {
  CambiumStore *store;
  CambiumTransaction *transaction;
  IS(argc == 2 && strlen(cambium_version()) >= 5);
  IS(strcmp(cambium_status_name(CAMBIUM_STATUS_READ_ONLY), "read-only") == 0);
  IS(strcmp(cambium_status_name(77), "unknown") == 0);
  OK(cambium_store_create_in_memory(NULL, &store, &error));
  OK(cambium_store_begin(store, &transaction, &error));
  put(transaction, one, "uno"), put(transaction, two, ""), put(transaction, three, "tres");
  OK(cambium_transaction_commit(transaction, NULL, &error));
  proofs(store, CAMBIUM_COMMITMENT_BINARY_BLAKE3);
  cambium_store_close(store);
  // Three tries: a commit that begins an interval moves what is proved from one into the next.
  CambiumOptions layered = {.commitment = CAMBIUM_COMMITMENT_LAYERED, .merge_interval_commits = 2};
  OK(cambium_store_create_in_memory(&layered, &store, &error));
  for (int commits = 0; commits < 6; commits++) {
    OK(cambium_store_begin(store, &transaction, &error));
    if (commits == 0) put(transaction, one, "uno"), put(transaction, two, ""), put(transaction, three, "tres");
    put(transaction, three, commits % 2 ? "tres" : "trois");
    OK(cambium_transaction_commit(transaction, NULL, &error));
    proofs(store, CAMBIUM_COMMITMENT_LAYERED);
  }
  cambium_store_close(store);
  layered.merge_interval_commits = 0;
  FAILS(INVALID_ARGUMENT, cambium_store_create_in_memory(&layered, &store, &error));
  openings(argv[1]);
  chains(argv[1]);
  puts("all is well");
}
