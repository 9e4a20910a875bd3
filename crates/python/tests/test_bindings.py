"""Tests of the package. tests/unittest.rs builds it, and runs them."""

import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

import cambium

ONE, TWO, THREE = (bytes([number]) + bytes(31) for number in (1, 2, 3))


def store_of(**entries):
    store = cambium.Store.in_memory(memory_bytes=64 << 20)
    names = {"one": ONE, "two": TWO, "three": THREE}
    store.write({names[name]: value for name, value in entries.items()})
    return store


class Stores(unittest.TestCase):
    def test_what_is_written_is_there_after_opening_it_again(self):
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory) / "store"
            with cambium.Store.create(path, commitment="mpt", memory_bytes=64 << 20) as store:
                self.assertEqual((store.commitment, store.newest.number), ("mpt", 0))
                commit = store.write({ONE: b"uno", TWO: b""})
                self.assertEqual((commit.number, commit), (1, store.newest))
                store.flush()
                with cambium.Store.open(path, read_only=True) as reader:
                    self.assertEqual(reader[ONE], b"uno")
                    with self.assertRaises(cambium.ReadOnlyError):
                        reader.write({ONE: b"eins"})
                with self.assertRaises(cambium.UnavailableError):
                    cambium.Store.open(path)
            with cambium.Store.open(str(path)) as store:
                self.assertEqual((store.root, store[ONE], store[TWO]), (commit.root, b"uno", b""))
                store.write({ONE: None})
                self.assertNotIn(ONE, store)
                self.assertEqual(store.begin(1)[ONE], b"uno")
                self.assertEqual(store.commit_with_root(commit.root), commit)
                self.assertEqual(store.roll_back(1), commit)
                self.assertEqual(store.get(ONE), b"uno")

    def test_what_is_not_there_is_refused_by_name(self):
        with tempfile.TemporaryDirectory() as directory:
            with self.assertRaisesRegex(cambium.UnavailableError, "there is no database in"):
                cambium.Store.open(os.path.join(directory, "none"))
            self.assertEqual(os.listdir(directory), [])
        store = store_of(one=b"uno")
        with self.assertRaises(cambium.NotKeptError):
            store.begin(99)
        with self.assertRaises(cambium.NotKeptError):
            store.roll_back(99)
        with self.assertRaises(cambium.NotKeptError):
            store.commit_with_root(ONE)
        with self.assertRaisesRegex(ValueError, "binary-blake3"):
            cambium.Store.in_memory(commitment="md5")
        with self.assertRaisesRegex(ValueError, "merge interval"):
            cambium.Store.in_memory(commitment="layered")
        with self.assertRaisesRegex(ValueError, "no intervals"):
            cambium.Store.in_memory(merge_interval=4)
        store.close()
        store.close()
        with self.assertRaises(cambium.UnavailableError):
            store.get(ONE)


class Transactions(unittest.TestCase):
    def test_a_transaction_is_a_mapping_of_its_snapshot_and_its_own_writes(self):
        store = store_of(one=b"uno", two=b"dos")
        transaction = store.begin()
        transaction[THREE] = b"tres"
        transaction.put(TWO, b"zwei")
        self.assertEqual(transaction[TWO], b"zwei")
        self.assertIn(ONE, transaction)
        self.assertEqual(list(transaction), [ONE, TWO, THREE])
        self.assertEqual(list(transaction.keys(TWO, TWO)), [TWO])
        self.assertEqual(list(transaction.values(last=TWO)), [b"uno", b"zwei"])
        del transaction[ONE]
        with self.assertRaises(KeyError) as raised:
            transaction[ONE]
        self.assertEqual(raised.exception.args, (ONE,))
        with self.assertRaises(KeyError):
            del transaction[ONE]
        transaction.delete(ONE)
        self.assertEqual(transaction.get(ONE, 5), 5)
        self.assertIsNone(transaction.get(ONE))
        self.assertEqual(transaction.get_many([THREE, ONE, TWO]), [b"tres", None, b"zwei"])
        self.assertEqual(transaction.get_many(iter(())), [])
        self.assertEqual(dict(transaction.items()), {TWO: b"zwei", THREE: b"tres"})
        transaction.update({ONE: b"back", THREE: None})
        transaction.warm_up([ONE])
        self.assertEqual(transaction.commit().number, 2)
        self.assertEqual((store[ONE], store.get(THREE)), (b"back", None))

    def test_a_block_commits_at_its_end_and_aborts_after_an_exception(self):
        store = store_of(one=b"uno")
        with store.begin() as transaction:
            transaction[ONE] = b"eins"
            self.assertIsNone(transaction.committed)
        self.assertEqual(transaction.committed, store.newest)
        with self.assertRaises(ZeroDivisionError):
            with store.begin() as transaction:
                transaction[ONE] = b"one"
                1 / 0
        self.assertEqual(store[ONE], b"eins")
        with store.begin() as transaction:
            transaction[ONE] = b"never"
            transaction.abort()
        self.assertEqual(store[ONE], b"eins")
        for use in (transaction.commit, lambda: transaction[ONE], lambda: list(transaction)):
            with self.assertRaisesRegex(cambium.UnavailableError, "begin another one"):
                use()

    def test_the_second_of_two_that_read_the_same_loses_and_says_why(self):
        store = store_of(one=b"1")
        first, second = store.begin(), store.begin()
        for transaction in (first, second):
            transaction[ONE] = transaction[ONE] + b"!"
        first.commit()
        with self.assertRaisesRegex(cambium.ConflictError, "begin it again"):
            second.commit()
        self.assertTrue(issubclass(cambium.ConflictError, cambium.CambiumError))
        self.assertEqual(store[ONE], b"1!")

    def test_keys_and_values_of_wrong_sizes_and_types_are_refused(self):
        transaction = store_of(one=b"1").begin()
        for wrong in (b"", bytes(31), bytes(33)):
            with self.assertRaisesRegex(ValueError, "a key has 32 bytes"):
                transaction.get(wrong)
            with self.assertRaises(ValueError):
                transaction.get_many([ONE, wrong])
        with self.assertRaises(TypeError):
            transaction["text"]
        with self.assertRaises(TypeError):
            transaction.get_many([1])
        with self.assertRaises(ValueError):
            transaction[ONE] = bytes(cambium.VALUE_BYTES_MAX + 1)
        transaction[ONE] = bytes(cambium.VALUE_BYTES_MAX)
        with self.assertRaises(ValueError):
            transaction.items(TWO, ONE)

    def test_what_is_written_ahead_of_an_iteration_is_visited(self):
        transaction = store_of(one=b"1", two=b"2").begin()
        seen = []
        for key, _ in transaction.items():
            seen.append(key)
            transaction[THREE] = b"3"
        self.assertEqual(seen, [ONE, TWO, THREE])

    def test_threads_share_a_store_and_their_increments_add_up(self):
        store = store_of(one=bytes(8))

        def increment():
            for _ in range(50):
                while True:
                    transaction = store.begin()
                    number = int.from_bytes(transaction[ONE], "big") + 1
                    transaction[ONE] = number.to_bytes(8, "big")
                    try:
                        transaction.commit()
                        break
                    except cambium.ConflictError:
                        pass

        threads = [threading.Thread(target=increment) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(int.from_bytes(store[ONE], "big"), 200)


class Proofs(unittest.TestCase):
    def test_a_proof_shows_values_and_absence_and_nothing_else(self):
        for commitment in ("binary-blake3", "binary-sha256", "mpt", "layered"):
            interval = 2 if commitment == "layered" else None
            store = cambium.Store.in_memory(commitment=commitment, merge_interval=interval)
            with self.subTest(commitment), store:
                # More than one interval of layered.
                for number in range(5):
                    store.write({THREE: bytes([number])})
                store.write({THREE: None})
                store.write({ONE: b"uno", TWO: b"x" * 40})
                values, proof = store.begin().prove([TWO, THREE])
                self.assertEqual(values, {TWO: b"x" * 40, THREE: None})
                cambium.verify(store.root, commitment, values, proof)
                for wrong in ({TWO: b"y" * 40, THREE: None}, {TWO: None, THREE: None}, {ONE: b"uno"}):
                    with self.assertRaises(cambium.ProofError):
                        cambium.verify(store.root, commitment, wrong, proof)
                with self.assertRaises(cambium.ProofError):
                    cambium.verify(store.root, commitment, values, proof[:-1])

    def test_a_range_proof_shows_all_entries_of_a_range(self):
        store = store_of(one=b"1", two=b"2", three=b"3")
        transaction = store.begin()
        proved = transaction.prove_range(limit=2)
        self.assertEqual(proved.entries, [(ONE, b"1"), (TWO, b"2")])
        self.assertTrue(proved.more)
        parts = (proved.first, proved.last)
        cambium.verify_range(store.root, store.commitment, *parts, proved.entries, proved.proof)
        with self.assertRaises(cambium.ProofError):
            cambium.verify_range(store.root, store.commitment, *parts, proved.entries[:1], proved.proof)
        self.assertFalse(transaction.prove_range(THREE, limit=2).more)
        with self.assertRaises(ValueError):
            transaction.prove_range(limit=0)


@unittest.skipUnless("CAMBIUM_TEST_CHAIN" in os.environ, "no chain: tests/unittest.rs makes one")
class Chains(unittest.TestCase):
    ALICE, BOB = b"\xa1" * 20, "0x" + "b0" * 20

    def setUp(self):
        self.chain = cambium.Chain.open(os.environ["CAMBIUM_TEST_CHAIN"], memory_bytes=64 << 20)

    def test_states_have_accounts_slots_and_codes_at_the_head_and_before(self):
        self.assertEqual(self.chain.head.number, 1)
        self.assertEqual(self.chain.catch_up(), self.chain.head)
        state, old = self.chain.state(), self.chain.state(0)
        account = state.account(self.ALICE)
        self.assertEqual((account.nonce, account.balance), (8, 2**200))
        self.assertEqual(old.account(self.ALICE.hex()).nonce, 7)
        self.assertEqual((old.block.number, state.block), (0, self.chain.head))
        self.assertIsNone(state.account(self.BOB))
        self.assertEqual(state.slot(self.ALICE, 0), 5)
        self.assertEqual(state.slot(self.ALICE, bytes(32)), 5)
        self.assertEqual(state.slot(self.BOB, 2**256 - 1), 0)
        self.assertEqual(state.code(account.code_hash), b"\x60\x00")
        with self.assertRaises(cambium.NotKeptError):
            self.chain.state(2)
        with self.assertRaises(ValueError):
            state.account(b"short")
        with self.assertRaises(OverflowError):
            state.slot(self.ALICE, -1)

    def test_an_account_is_proved_as_eth_get_proof_does(self):
        state = self.chain.state()
        proof = state.prove(self.ALICE, [0, 1])
        self.assertEqual(proof["nonce"], "0x8")
        account, slots = cambium.verify_account(state.root, self.ALICE, proof)
        self.assertEqual(account, state.account(self.ALICE))
        self.assertEqual(list(slots.values()), [5, 0])
        account, slots = cambium.verify_account(state.root, self.BOB, state.prove(self.BOB))
        self.assertEqual((account, slots), (None, {}))
        with self.assertRaises(cambium.ProofError):
            cambium.verify_account(state.root, self.BOB, proof)
        with self.assertRaises(cambium.ProofError):
            cambium.verify_account(state.root, self.ALICE, {**proof, "nonce": "0x9"})
        with self.assertRaises(cambium.ProofError):
            cambium.verify_account(ONE, self.ALICE, proof)

    def test_a_closed_chain_is_refused_and_its_states_are_not(self):
        with self.chain as chain:
            state = chain.state()
        with self.assertRaises(cambium.UnavailableError):
            self.chain.state()
        self.assertEqual(state.account(self.ALICE).nonce, 8)

    def test_stores_and_chains_are_not_taken_for_each_other(self):
        with self.assertRaisesRegex(cambium.UnavailableError, "it is a chain's"):
            cambium.Store.open(os.environ["CAMBIUM_TEST_CHAIN"], read_only=True)
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "store")
            cambium.Store.create(path).close()
            with self.assertRaisesRegex(ValueError, "has entries, not accounts"):
                cambium.Chain.open(path)


class Package(unittest.TestCase):
    def test_the_types_name_everything_that_the_package_has(self):
        package = pathlib.Path(cambium.__file__).parent
        self.assertTrue((package / "py.typed").exists())
        types = (package / "_native.pyi").read_text()
        for name in cambium.__all__:
            self.assertRegex(types, rf"(?m)^(class|def) {name}\b|^{name}: ")
            made = getattr(cambium, name)
            for method in vars(made) if isinstance(made, type) else ():
                if not method.startswith("_"):
                    self.assertIn(f"def {method}(", types, f"{name}.{method}")

    @unittest.skipUnless("CAMBIUM_EXAMPLES" in os.environ, "no examples: tests/unittest.rs says where")
    def test_the_example_runs_as_it_says(self):
        example = pathlib.Path(os.environ["CAMBIUM_EXAMPLES"]) / "ledger.py"
        with tempfile.TemporaryDirectory() as directory:
            command = [sys.executable, str(example), os.path.join(directory, "ledger")]
            printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        self.assertEqual(printed.splitlines()[0], "commit 2: bob has 30")
        self.assertIn("the second one has to begin again\n", printed)
        self.assertTrue(printed.endswith("rolled back to commit 1\n"))


if __name__ == "__main__":
    unittest.main()
