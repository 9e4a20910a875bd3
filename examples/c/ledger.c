/* A ledger in a Cambium store: transactions, a conflict, iteration, a proof, a rollback.
 * In the project's directory:
 *     cargo build --release -p cambium-capi
 *     cc -Wall -Wextra -Werror -I crates/capi/include examples/c/ledger.c \
 *         -L target/release -lcambium_capi -Wl,-rpath,"$PWD/target/release" -o target/ledger
 *     target/ledger /tmp/ledger
 */
#include <cambium.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static CambiumError error;
/* Ends the program unless the call did what it was asked. */
static void check(CambiumStatus status) {
  if (status == CAMBIUM_STATUS_OK) return;
  fprintf(stderr, "%s: %s\n", cambium_status_name(status), error.message);
  exit(EXIT_FAILURE);
}

/* The key of a name. Real keys are hashes: they spread over the trie. */
static void key_of(const char *name, uint8_t key[32]) {
  memset(key, 0, 32);
  memcpy(key, name, strlen(name));
}

static uint64_t balance(const CambiumTransaction *transaction, const char *name) {
  uint8_t key[32];
  uint64_t amount = 0;
  CambiumBytes value;
  key_of(name, key);
  CambiumStatus status = cambium_transaction_get(transaction, key, &value, &error);
  if (status == CAMBIUM_STATUS_NOT_FOUND) return 0;
  check(status);
  memcpy(&amount, value.data, value.len < sizeof amount ? value.len : sizeof amount);
  cambium_bytes_free(&value);
  return amount;
}

static void set(CambiumTransaction *transaction, const char *name, uint64_t amount) {
  uint8_t key[32];
  key_of(name, key);
  check(cambium_transaction_put(transaction, key, (uint8_t *)&amount, sizeof amount, &error));
}

/* Moves an amount, and tries again if another transaction was faster. `rival` is one. */
static void transfer(CambiumStore *store, const char *from, const char *to, uint64_t amount, int rival) {
  CambiumTransaction *transaction;
  CambiumCommit commit;
  check(cambium_store_begin(store, &transaction, &error));
  set(transaction, from, balance(transaction, from) - amount);
  set(transaction, to, balance(transaction, to) + amount);
  if (rival) transfer(store, from, to, 1, 0);
  CambiumStatus status = cambium_transaction_commit(transaction, &commit, &error);
  if (status == CAMBIUM_STATUS_CONFLICT) {
    printf("once more: %s\n", error.message);
    transfer(store, from, to, amount, 0);
  } else {
    check(status);
    printf("commit %" PRIu64 ": %s to %s, %" PRIu64 "\n", commit.number, from, to, amount);
  }
}

int main(int argc, char **argv) {
  if (argc != 2) return fprintf(stderr, "usage: %s NEW_DIRECTORY\n", argv[0]), EXIT_FAILURE;
  CambiumOptions options = {.memory_bytes = 64 << 20};
  CambiumTransaction *transaction;
  CambiumStore *store;
  check(cambium_store_create(argv[1], &options, &store, &error));
  check(cambium_store_begin(store, &transaction, &error));
  set(transaction, "alice", 100);
  check(cambium_transaction_commit(transaction, NULL, &error));
  transfer(store, "alice", "bob", 30, 1);

  CambiumCursor *cursor;
  CambiumBytes value, proof;
  CambiumCommit newest;
  uint8_t key[32];
  check(cambium_store_begin(store, &transaction, &error));
  check(cambium_cursor_new(transaction, NULL, NULL, &cursor, &error));
  while (cambium_cursor_next(cursor, transaction, key, &value, &error) == CAMBIUM_STATUS_OK) {
    printf("%.32s has %" PRIu64 "\n", (char *)key, balance(transaction, (char *)key));
    cambium_bytes_free(&value);
  }
  cambium_cursor_free(cursor);

  key_of("bob", key);
  check(cambium_transaction_snapshot(transaction, &newest, &error));
  check(cambium_transaction_prove(transaction, key, 1, &value, &proof, &error));
  check(cambium_verify(newest.root, CAMBIUM_COMMITMENT_BINARY_BLAKE3, key, &value, 1, proof.data, proof.len, &error));
  printf("proved to whoever knows the root, in %zu bytes\n", proof.len);
  cambium_bytes_free(&proof);
  cambium_bytes_free(&value);
  cambium_transaction_abort(transaction);

  check(cambium_store_roll_back(store, 2, &newest, &error));
  printf("rolled back to commit %" PRIu64 "\n", newest.number);
  cambium_store_close(store);
}
