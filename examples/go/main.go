// A ledger in a Cambium store, through the C ABI: a commit, reads in order, and a proof.
//
// In the project's directory:
//
//	cargo build --release -p cambium-capi
//	cd examples/go
//	export CGO_CFLAGS="-I$PWD/../../crates/capi/include"
//	export CGO_LDFLAGS="-L$PWD/../../target/release -lcambium_capi -Wl,-rpath,$PWD/../../target/release"
//	go run . /tmp/ledger
package main

/*
#include <cambium.h>
#include <stdlib.h>
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"unsafe"
)

// ErrConflict is the error of a transaction that lost against another one: run it again.
var ErrConflict = errors.New("conflict")

// Key is the key of an entry. Real keys are hashes: they spread over the trie.
type Key [32]byte

func keyOf(name string) (key Key) {
	copy(key[:], name)
	return key
}

func (key *Key) c() *C.uint8_t { return (*C.uint8_t)(unsafe.Pointer(&key[0])) }

// failure makes a Go error of a status. The message is the call's own, so it does not matter on which
// thread a goroutine goes on.
func failure[Status ~uint32](status Status, message *C.CambiumError) error {
	switch status {
	case C.CAMBIUM_STATUS_OK, C.CAMBIUM_STATUS_NOT_FOUND:
		return nil
	case C.CAMBIUM_STATUS_CONFLICT:
		return fmt.Errorf("%w: %s", ErrConflict, C.GoString(&message.message[0]))
	default:
		return errors.New(C.GoString(&message.message[0]))
	}
}

// Store is an open store. Goroutines may share it.
type Store struct{ handle *C.CambiumStore }

// Transaction reads one snapshot. End it with Commit or Abort.
type Transaction struct{ handle *C.CambiumTransaction }

// Create makes a store in a new directory.
func Create(directory string) (store Store, err error) {
	path := C.CString(directory)
	defer C.free(unsafe.Pointer(path))
	options := C.CambiumOptions{memory_bytes: 64 << 20}
	var message C.CambiumError
	err = failure(C.cambium_store_create(path, &options, &store.handle, &message), &message)
	return store, err
}

// Close closes the store.
func (store Store) Close() { C.cambium_store_close(store.handle) }

// Begin begins a transaction at the newest commit.
func (store Store) Begin() (transaction Transaction, err error) {
	var message C.CambiumError
	err = failure(C.cambium_store_begin(store.handle, &transaction.handle, &message), &message)
	return transaction, err
}

// taken copies bytes into Go's memory and frees the library's; nil if there is no value.
func taken(bytes *C.CambiumBytes) []byte {
	defer C.cambium_bytes_free(bytes)
	if bytes.data == nil {
		return nil
	}
	return append([]byte{}, unsafe.Slice((*byte)(unsafe.Pointer(bytes.data)), int(bytes.len))...)
}

// Get reads a value; nil if there is none.
func (t Transaction) Get(key Key) ([]byte, error) {
	var value C.CambiumBytes
	var message C.CambiumError
	status := C.cambium_transaction_get(t.handle, key.c(), &value, &message)
	if err := failure(status, &message); err != nil {
		return nil, err
	}
	return taken(&value), nil
}

// Put sets a value.
func (t Transaction) Put(key Key, value []byte) error {
	var message C.CambiumError
	data := (*C.uint8_t)(unsafe.Pointer(unsafe.SliceData(value)))
	return failure(C.cambium_transaction_put(t.handle, key.c(), data, C.size_t(len(value)), &message), &message)
}

// Commit makes the writes durable, and ends the transaction. Returns the root.
func (t Transaction) Commit() (root Key, err error) {
	var commit C.CambiumCommit
	var message C.CambiumError
	if err := failure(C.cambium_transaction_commit(t.handle, &commit, &message), &message); err != nil {
		return root, err
	}
	return *(*Key)(unsafe.Pointer(&commit.root)), nil
}

// Abort ends the transaction without its writes.
func (t Transaction) Abort() { C.cambium_transaction_abort(t.handle) }

// Each visits all entries in the order of their keys.
func (t Transaction) Each(visit func(Key, []byte)) error {
	var cursor *C.CambiumCursor
	var message C.CambiumError
	if err := failure(C.cambium_cursor_new(t.handle, nil, nil, &cursor, &message), &message); err != nil {
		return err
	}
	defer C.cambium_cursor_free(cursor)
	for {
		var key Key
		var value C.CambiumBytes
		status := C.cambium_cursor_next(cursor, t.handle, key.c(), &value, &message)
		if status != C.CAMBIUM_STATUS_OK {
			return failure(status, &message)
		}
		visit(key, taken(&value))
	}
}

// Prove proves the value at a key, or that there is none.
func (t Transaction) Prove(key Key) ([]byte, error) {
	var proof C.CambiumBytes
	var message C.CambiumError
	status := C.cambium_transaction_prove(t.handle, key.c(), 1, nil, &proof, &message)
	if err := failure(status, &message); err != nil {
		return nil, err
	}
	return taken(&proof), nil
}

// Verify verifies that the root has the value at the key. It needs no store.
func Verify(root, key Key, value, proof []byte) error {
	// C reads the value through a structure: it must not be Go's memory.
	claimed := C.CambiumBytes{data: (*C.uint8_t)(C.CBytes(value)), len: C.size_t(len(value))}
	defer C.free(unsafe.Pointer(claimed.data))
	var message C.CambiumError
	data := (*C.uint8_t)(unsafe.Pointer(unsafe.SliceData(proof)))
	status := C.cambium_verify(root.c(), C.CAMBIUM_COMMITMENT_BINARY_BLAKE3, key.c(), &claimed, 1, data,
		C.size_t(len(proof)), &message)
	return failure(status, &message)
}

func run(directory string) error {
	store, err := Create(directory)
	if err != nil {
		return err
	}
	defer store.Close()
	first, err := store.Begin()
	if err != nil {
		return err
	}
	for name, amount := range map[string]string{"alice": "70", "bob": "30"} {
		if err := first.Put(keyOf(name), []byte(amount)); err != nil {
			first.Abort()
			return err
		}
	}
	root, err := first.Commit()
	if err != nil {
		return err
	}
	second, err := store.Begin()
	if err != nil {
		return err
	}
	defer second.Abort()
	if err := second.Each(func(key Key, value []byte) { fmt.Printf("%.5s has %s\n", key[:], value) }); err != nil {
		return err
	}
	nobody, err := second.Get(keyOf("carol"))
	if err != nil {
		return err
	}
	fmt.Println("carol is known:", nobody != nil)
	proof, err := second.Prove(keyOf("bob"))
	if err != nil {
		return err
	}
	fmt.Println("30 is proved:", Verify(root, keyOf("bob"), []byte("30"), proof) == nil)
	fmt.Println("31 is refused:", Verify(root, keyOf("bob"), []byte("31"), proof))
	return nil
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: ledger NEW_DIRECTORY")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
