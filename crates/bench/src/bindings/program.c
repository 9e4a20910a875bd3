/* The program in C: see mod.rs. */
#define _POSIX_C_SOURCE 199309L
#include <cambium.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BATCH 1000

static CambiumError error;

static void check(CambiumStatus status) {
  if (status == CAMBIUM_STATUS_OK) return;
  fprintf(stderr, "%s\n", error.message);
  exit(EXIT_FAILURE);
}

static uint64_t mixed(uint64_t number) {
  uint64_t z = number * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
  uint64_t entries = argc == 2 ? strtoull(argv[1], NULL, 10) : 0, sum = 0;
  uint8_t *keys = malloc(32 * entries + 1);
  if (!keys || entries % BATCH) return EXIT_FAILURE;
  for (uint64_t word = 0; word < 4 * entries; word++)
    for (int byte = 0; byte < 8; byte++) keys[8 * word + byte] = (uint8_t)(mixed(word + 1) >> (8 * byte));
  CambiumStore *store;
  CambiumTransaction *transaction;
  CambiumBatch *batch = cambium_batch_new();
  check(cambium_store_create_in_memory(NULL, &store, &error));

  double start = now();
  for (uint8_t *key = keys; key < keys + 32 * entries;) {
    for (uint8_t *end = key + 32 * BATCH; key < end; key += 32) check(cambium_batch_put(batch, key, key, 32, &error));
    check(cambium_store_write(store, batch, NULL, &error));
  }
  double write_batches = entries / (now() - start);

  start = now();
  for (uint8_t *key = keys; key < keys + 32 * entries;) {
    check(cambium_store_begin(store, &transaction, &error));
    for (uint8_t *end = key + 32 * BATCH; key < end; key += 32) {
      CambiumBytes value;
      check(cambium_transaction_get(transaction, key, &value, &error));
      sum += value.data[0];
      cambium_bytes_free(&value);
    }
    cambium_transaction_abort(transaction);
  }
  double gets = entries / (now() - start);

  static CambiumBytes values[BATCH];
  start = now();
  for (uint8_t *key = keys; key < keys + 32 * entries; key += 32 * BATCH) {
    check(cambium_store_begin(store, &transaction, &error));
    check(cambium_transaction_get_many(transaction, key, BATCH, values, &error));
    for (int at = 0; at < BATCH; at++) sum += values[at].data[0];
    cambium_bytes_free_many(values, BATCH);
    cambium_transaction_abort(transaction);
  }
  double get_batches = entries / (now() - start);
  printf("{\"write_batches\": %f, \"gets\": %f, \"get_batches\": %f, \"sum\": %" PRIu64 "}\n", write_batches, gets,
         get_batches, sum);
  cambium_batch_free(batch);
  cambium_store_close(store);
  free(keys);
}
