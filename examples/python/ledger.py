"""A ledger in a Cambium store: transactions, a conflict, iteration, a proof, a rollback.

    cd crates/python && maturin develop --release   # or see docs/BINDINGS.md, without maturin
    python examples/python/ledger.py /tmp/ledger
"""

import hashlib
import sys

import cambium


def key_of(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


def balance(transaction: cambium.Transaction, name: str) -> int:
    return int.from_bytes(transaction.get(key_of(name), b""), "big")


def transfer(store: cambium.Store, payer: str, payee: str, amount: int) -> cambium.Commit:
    while True:
        transaction = store.begin()
        transaction[key_of(payer)] = (balance(transaction, payer) - amount).to_bytes(8, "big")
        transaction[key_of(payee)] = (balance(transaction, payee) + amount).to_bytes(8, "big")
        try:
            return transaction.commit()
        except cambium.ConflictError as conflict:
            print("once more:", conflict)


def main(directory: str) -> None:
    with cambium.Store.create(directory, memory_bytes=64 << 20) as store:
        with store.begin() as transaction:
            transaction[key_of("alice")] = (100).to_bytes(8, "big")
        commit = transfer(store, "alice", "bob", 30)
        print(f"commit {commit.number}: bob has {balance(store.begin(), 'bob')}")

        # Of two transactions that read the same, the second one loses.
        late = store.begin()
        late[key_of("alice")] = balance(late, "alice").to_bytes(8, "big")
        transfer(store, "alice", "bob", 1)
        try:
            late.commit()
        except cambium.ConflictError:
            print("the second one has to begin again")

        for _, amount in store.begin().items():
            print("an entry:", int.from_bytes(amount, "big"))

        values, proof = store.begin().prove([key_of("bob"), key_of("carol")])
        cambium.verify(store.root, store.commitment, values, proof)
        print("proved to whoever knows the root: bob's 31, and that carol has none")

        print("rolled back to commit", store.roll_back(2).number)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: ledger.py NEW_DIRECTORY")
    main(sys.argv[1])
