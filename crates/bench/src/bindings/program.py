"""The program in Python: see mod.rs."""

import json
import sys
import time

import cambium

BATCH = 1000
MASK = (1 << 64) - 1


def mixed(number):
    z = number * 0x9E3779B97F4A7C15 & MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


def key(number):
    return b"".join(mixed(4 * number + word).to_bytes(8, "little") for word in range(1, 5))


def main(entries):
    keys = [key(number) for number in range(entries)]
    batches = [keys[at : at + BATCH] for at in range(0, entries, BATCH)]
    store = cambium.Store.in_memory()
    total = 0

    start = time.perf_counter()
    for batch in batches:
        store.write({key: key for key in batch})
    write_batches = entries / (time.perf_counter() - start)

    start = time.perf_counter()
    for batch in batches:
        transaction = store.begin()
        for key_to_read in batch:
            total += transaction[key_to_read][0]
    gets = entries / (time.perf_counter() - start)

    start = time.perf_counter()
    for batch in batches:
        for value in store.begin().get_many(batch):
            total += value[0]
    get_batches = entries / (time.perf_counter() - start)
    rates = {"write_batches": write_batches, "gets": gets, "get_batches": get_batches, "sum": total}
    print(json.dumps(rates))


main(int(sys.argv[1]))
