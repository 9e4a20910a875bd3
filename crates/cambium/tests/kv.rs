//! The commands on a key-value store, as their users run them.

use crate::support;
use crate::support::{Run, cambium, program};
use cambium::{B256, keccak256};
use serde_json::{Value, json};
use std::{fs, io::Write, path::PathBuf, process::Stdio};
use tempfile::TempDir;

/// A folder with a store in it.
struct Stored {
    dir: TempDir,
}

impl Stored {
    fn new(commitment: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let stored = Self { dir };
        let mut args = vec!["init", "--commitment", commitment];
        if commitment == "layered" {
            args.extend(["--merge-interval", "2"]);
        }
        let made = stored.run(&args).done();
        assert_eq!(made.json()["commitment"], commitment);
        assert_eq!(made.json()["number"], 0);
        stored
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs a command on the store, with `--json`.
    fn run(&self, args: &[&str]) -> Run {
        let store = self.path("store").into_os_string().into_string().unwrap();
        let all = ["kv", "--json", args[0], "-d", &store];
        cambium(all.iter().chain(&args[1..]))
    }

    /// The same for people.
    fn say(&self, args: &[&str]) -> Run {
        let store = self.path("store").into_os_string().into_string().unwrap();
        let all = ["kv", args[0], "-d", &store];
        cambium(all.iter().chain(&args[1..]))
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path.into_os_string().into_string().unwrap()
    }

    fn root(&self) -> String {
        self.say(&["root"]).done().stdout.trim().to_owned()
    }
}

fn hex(text: &str) -> Value {
    json!(cambium::Bytes::copy_from_slice(text.as_bytes()))
}

fn key(name: &str) -> Value {
    json!(keccak256(name))
}

fn key_hex(byte: u8) -> String {
    B256::repeat_byte(byte).to_string()
}

#[test]
fn values_are_put_read_and_deleted() {
    let stored = Stored::new("binary-blake3");
    let put = stored
        .run(&["put", "alice", "100", "bob", "0x00ff"])
        .done()
        .json();
    assert_eq!(put["number"], 1);
    assert_eq!(put["root"], stored.root());
    let got = stored.run(&["get", "alice", "bob", "carol"]).done().json();
    let expected = json!([
        { "key": key("alice"), "value": hex("100") },
        { "key": key("bob"), "value": "0x00ff" },
        { "key": key("carol"), "value": null },
    ]);
    assert_eq!(got["entries"], expected);
    assert_eq!(
        (&got["number"], &got["root"]),
        (&put["number"], &put["root"])
    );
    assert_eq!(stored.say(&["get", "alice"]).done().stdout, "100\n");
    assert_eq!(stored.say(&["get", "carol"]).done().stdout, "(none)\n");
    let whole = keccak256("alice").to_string();
    assert_eq!(stored.say(&["get", &whole]).done().stdout, "100\n");

    let file = stored.write("value", "from a file");
    stored.run(&["put", "carol", &format!("@{file}")]).done();
    assert_eq!(stored.say(&["get", "carol"]).done().stdout, "from a file\n");
    // One that is too long for its leaf, and one that is too long for any store.
    let long = "long ".repeat(200_000);
    let file = stored.write("long", &long);
    stored.run(&["put", "dave", &format!("@{file}")]).done();
    assert_eq!(
        stored.say(&["get", "dave"]).done().stdout,
        long.clone() + "\n"
    );
    let listed = stored.run(&["list"]).done().json();
    assert!(
        listed["entries"]
            .as_array()
            .unwrap()
            .iter()
            .any(|it| it["value"] == hex(&long))
    );
    let file = stored.write("too-long", &"x".repeat((16 << 20) + 1));
    stored
        .run(&["put", "erin", &format!("@{file}")])
        .fails(1, &["too-long", "at most 16777216"]);
    let deleted = stored.run(&["delete", "alice", "nobody"]).done().json();
    assert_eq!(deleted["number"], 4);
    assert_eq!(stored.say(&["get", "alice"]).done().stdout, "(none)\n");
    // Older commits, by number and by root.
    assert_eq!(
        stored.say(&["get", "alice", "--commit", "1"]).done().stdout,
        "100\n"
    );
    let root = put["root"].as_str().unwrap();
    assert_eq!(
        stored.say(&["get", "alice", "--root", root]).done().stdout,
        "100\n"
    );
    let at = stored.run(&["root", "--commit", "1"]).done().json();
    assert_eq!(at["root"], put["root"]);
}

#[test]
fn a_rotten_value_is_named_by_whoever_reads_it() {
    let stored = Stored::new("binary-blake3");
    let file = stored.write("value", &"value ".repeat(10_000));
    stored
        .run(&["put", "alice", &format!("@{file}"), "bob", "100"])
        .done();
    let store = stored.path("store");
    let check = || cambium(["db", "check", "--json", "-d", store.to_str().unwrap()]);
    let segment = store.join("values/00000001.val");
    let mut bytes = fs::read(&segment).unwrap();
    bytes[30_000] ^= 1;
    fs::write(&segment, &bytes).unwrap();
    let name = keccak256("alice").to_string();
    stored
        .run(&["get", "alice"])
        .fails(4, &["00000001.val", &name, "backup"]);
    stored.run(&["get", "bob"]).done();
    let found = check().json();
    assert_eq!(found["sound"], false, "{found}");
    assert_eq!(found["values"], 1);
    let damage = found["damage"][0].as_str().unwrap();
    assert!(
        damage.contains("00000001.val") && damage.contains(&name),
        "{damage}"
    );
    stored.run(&["put", "alice", &format!("@{file}")]).done();
    stored.run(&["get", "alice"]).done();
    assert_eq!(check().json()["sound"], true);
}

#[test]
fn entries_are_listed_in_the_order_of_their_keys() {
    let stored = Stored::new("mpt");
    let keys: Vec<_> = (1..=9u8)
        .map(|byte| B256::repeat_byte(byte).to_string())
        .collect();
    let mut args = vec!["put"];
    for key in keys.iter().rev() {
        args.extend([key, "x"]);
    }
    stored.run(&args).done();
    let listed = |args: &[&str]| {
        let all = [&["list"], args].concat();
        let json = stored.run(&all).done().json();
        let entries = json["entries"].as_array().unwrap().iter();
        let found: Vec<_> = entries
            .map(|entry| entry["key"].as_str().unwrap().to_owned())
            .collect();
        (found, json["next"].clone())
    };
    assert_eq!(listed(&[]), (keys.clone(), Value::Null));
    assert_eq!(
        listed(&["--limit", "4"]),
        (keys[..4].to_vec(), json!(keys[4]))
    );
    let range = ["--from", &keys[2], "--to", &keys[5]];
    assert_eq!(listed(&range), (keys[2..=5].to_vec(), Value::Null));
    let text = stored.say(&["list", "--limit", "1"]).done().stdout;
    assert!(text.contains(&format!("--from {}", keys[1])), "{text}");
    let empty = ["list", "--from", &keys[5], "--to", &keys[2]];
    stored.run(&empty).fails(2, &["comes before"]);
}

#[test]
fn proofs_are_verified_without_the_store_and_forged_ones_refused() {
    for commitment in ["binary-blake3", "binary-sha256", "mpt", "layered"] {
        let stored = Stored::new(commitment);
        for name in ["alice", "bob", "carol", "dave"] {
            stored
                .run(&[
                    "put",
                    name,
                    &format!("the value of {name}, longer than a hash"),
                ])
                .done();
        }
        let root = stored.root();
        let proof = stored.say(&["prove", "alice", "nobody"]).done().stdout;
        let verify = |text: &str, root: &str| {
            let file = stored.write("proof.json", text);
            cambium!("kv", "--json", "verify", file, "--root", root)
        };
        let verified = verify(&proof, &root).done().json();
        assert_eq!(verified["holds"], true);
        assert_eq!(verified["commitment"], commitment);
        assert_eq!(
            verified["entries"][1],
            json!({ "key": key("nobody"), "value": null })
        );

        let other = B256::repeat_byte(7).to_string();
        verify(&proof, &other).fails(5, &["does not hold", &other]);
        let json: Value = serde_json::from_str(&proof).unwrap();
        let forged = |change: &dyn Fn(&mut Value)| {
            let mut forged = json.clone();
            change(&mut forged);
            verify(&forged.to_string(), &root).fails(5, &["does not hold"]);
        };
        forged(&|proof| proof["entries"][0]["value"] = json!("0x11"));
        forged(&|proof| proof["entries"][0]["value"] = Value::Null);
        forged(&|proof| proof["entries"][1]["value"] = json!("0x11"));
        forged(&|proof| proof["entries"][0]["key"] = key("bob"));
        forged(&|proof| proof["commitment"] = json!("unheard of"));
        forged(&|proof| proof["proof"] = json!("0x"));
        forged(&|proof| {
            let bytes = proof["proof"].as_str().unwrap();
            let cut = bytes[..bytes.len() - 2].to_owned();
            proof["proof"] = json!(cut);
        });
        verify("{}", &root).fails(5, &["proof of entries"]);
    }
}

#[test]
fn a_store_under_layered_has_an_interval_and_the_same_commands() {
    let stored = Stored::new("layered");
    let other = stored.path("other").into_os_string().into_string().unwrap();
    let init = |args: &[&str]| {
        let all = ["kv", "--json", "init", "-d", &other];
        cambium(all.iter().chain(args))
    };
    init(&["--commitment", "layered"]).fails(2, &["--merge-interval"]);
    init(&["--merge-interval", "3"]).fails(1, &["no intervals"]);
    init(&["--commitment", "mpt", "--merge-interval", "3"]).fails(1, &["no intervals"]);
    let made = init(&["--commitment", "layered", "--merge-interval", "3"]);
    assert_eq!(made.done().json()["merge_interval"], 3);
    let mut roots = vec![stored.root()];
    for number in 0..7 {
        let value = format!("value {number}");
        stored.run(&["put", "alice", &value]).done();
        roots.push(stored.root());
    }
    stored.run(&["delete", "alice"]).done();
    // Proofs of old commits, of which each has a root of its own.
    for (number, root) in roots.iter().enumerate() {
        let at = number.to_string();
        let proof = stored.run(&["prove", "alice", "--commit", &at]).done();
        assert_eq!(proof.json()["commitment"], "layered");
        assert_eq!(proof.json()["root"], json!(root));
        let file = stored.write("proof.json", &proof.stdout);
        let verified = cambium!("kv", "--json", "verify", &file, "--root", root).done();
        let value = match number {
            0 => Value::Null,
            number => hex(&format!("value {}", number - 1)),
        };
        assert_eq!(verified.json()["entries"][0]["value"], value);
        let before = &roots[number.saturating_sub(1)];
        if before != root {
            cambium!("kv", "--json", "verify", &file, "--root", before)
                .fails(5, &["does not hold"]);
        }
    }
    // A deletion is a tombstone, and proved.
    let proof = stored.run(&["prove", "alice"]).done();
    let file = stored.write("proof.json", &proof.stdout);
    let root = stored.root();
    let verified = cambium!("kv", "--json", "verify", &file, "--root", &root).done();
    assert_eq!(verified.json()["entries"][0]["value"], Value::Null);
    // Taken back, the store has the root that it had.
    stored.run(&["rollback", "3"]).done();
    assert_eq!(stored.root(), roots[5]);
    let store = stored.path("store");
    let checked = cambium(["db", "check", "--json", "-d", store.to_str().unwrap()]);
    assert_eq!(checked.json()["sound"], true);
}

#[test]
fn ranges_are_proved_whole() {
    for commitment in ["binary-blake3", "mpt", "layered"] {
        let stored = Stored::new(commitment);
        let file = (0..50)
            .map(|at| format!("key{at} value{at}\n"))
            .collect::<String>();
        let file = stored.write("entries", &file);
        stored.run(&["load", &file]).done();
        let root = stored.root();
        let (mut from, mut entries) = (B256::ZERO.to_string(), 0);
        loop {
            let args = ["prove", "--range", "--limit", "20", "--from", &from];
            let proof = stored.run(&args).done();
            let verify = |text: &str| {
                let file = stored.write("proof.json", text);
                cambium!("kv", "--json", "verify", file, "--root", &root)
            };
            let verified = verify(&proof.stdout).done().json();
            entries += verified["entries"].as_array().unwrap().len();
            let mut forged = proof.json();
            forged["entries"].as_array_mut().unwrap().pop();
            verify(&forged.to_string()).fails(5, &["does not hold"]);
            let mut forged = proof.json();
            forged["last"] = json!(B256::repeat_byte(0xff));
            if proof.json()["last"] != forged["last"] {
                verify(&forged.to_string()).fails(5, &["does not hold"]);
            }
            match proof.json()["next"].as_str() {
                Some(next) => from = next.to_owned(),
                None => break,
            }
        }
        assert_eq!(entries, 50);
    }
}

#[test]
fn a_file_of_entries_is_loaded_in_commits() {
    let stored = Stored::new("binary-sha256");
    let lines = "alice 100\nbob\t200 and more\n\nalice\ncarol 0x0102\ndave \n";
    let file = stored.write("entries", lines);
    let loaded = stored.run(&["load", &file, "--batch", "2"]).done().json();
    let counts = ["commits", "entries", "deleted", "number"].map(|name| loaded[name].clone());
    assert_eq!(counts, [3, 4, 1, 3].map(|count| json!(count)));
    let read = |name: &str| stored.run(&["get", name]).done().json()["entries"][0]["value"].clone();
    assert_eq!(read("alice"), Value::Null);
    assert_eq!(read("bob"), hex("200 and more"));
    assert_eq!(
        (read("carol"), read("dave")),
        (json!("0x0102"), json!("0x"))
    );

    let bad = stored.write("bad", "erin 1\n0x12 3\n");
    stored
        .run(&["load", &bad])
        .fails(1, &["bad: line 2", "64 hexadecimal digits"]);
    assert_eq!(read("erin"), Value::Null);
    let large = stored.write("large", &format!("erin {}", "x".repeat(17 << 20)));
    stored
        .run(&["load", &large])
        .fails(1, &["line 1", "at most"]);

    let mut command = program();
    command
        .args(["kv", "load", "-", "-d"])
        .arg(stored.path("store"));
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"frank 5\n").unwrap();
    Run::of(child.wait_with_output().unwrap()).done();
    assert_eq!(read("frank"), hex("5"));
}

#[test]
fn commits_are_rolled_back() {
    let stored = Stored::new("binary-blake3");
    let roots: Vec<_> = ["1", "2", "3"]
        .iter()
        .map(|value| stored.run(&["put", "alice", value]).done().json()["root"].clone())
        .collect();
    let back = stored.run(&["rollback", "2"]).done().json();
    assert_eq!((&back["number"], &back["root"]), (&json!(1), &roots[0]));
    assert_eq!(stored.say(&["get", "alice"]).done().stdout, "1\n");
    stored
        .run(&["rollback", "2"])
        .fails(1, &["can't roll back 2 commits", "is 1"]);
    assert_eq!(
        stored.run(&["put", "alice", "2"]).done().json()["root"],
        roots[1]
    );
}

#[test]
fn what_is_no_store_is_refused_and_left_alone() {
    let stored = Stored::new("binary-blake3");
    stored.run(&["init"]).fails(1, &[]);
    let nowhere = stored.path("nowhere");
    for args in [&["get", "alice"][..], &["put", "alice", "1"], &["root"]] {
        let all = [
            &["kv", args[0], "-d", nowhere.to_str().unwrap()],
            &args[1..],
        ]
        .concat();
        cambium(all).fails(1, &["nowhere", "cambium kv init"]);
    }
    assert!(!nowhere.exists());
    // A chain's database is not a store, and a store is not a chain.
    let fixture = support::Fixture::generate(20, 1, 2);
    cambium!("init", "--genesis", fixture.genesis(), "-d", fixture.db()).done();
    cambium!("kv", "get", "alice", "-d", fixture.db()).fails(1, &["accounts, not entries"]);
    cambium!("kv", "put", "alice", "1", "-d", fixture.db()).fails(1, &["accounts, not entries"]);
    let import = cambium!("import", "-d", stored.path("store"), fixture.chain());
    assert_ne!(import.code, 0, "{}", import.stdout);
}

/// An entry is not an account, even at the key that an address has.
#[test]
fn commands_on_the_state_of_a_chain_refuse_a_store() {
    let address = "0x00000000000000000000000000000000000000aa";
    for commitment in ["binary-blake3", "mpt", "layered"] {
        let stored = Stored::new(commitment);
        let key = keccak256(address.parse::<cambium::Address>().unwrap()).to_string();
        stored.run(&["put", &key, "1", "bob", "2"]).done();
        let store = stored.path("store");
        let words = ["is a key-value store", "cambium kv"];
        cambium!("get", address, "-d", store).fails(1, &words);
        cambium!("prove", address, "-d", store).fails(1, &words);
        cambium!("prove-range", "-d", store).fails(1, &words);
        cambium!("unwind", "--to", "0", "-d", store).fails(1, &words);
        assert_eq!(stored.run(&["root"]).done().json()["number"], 1);
    }
}

/// A proof of a range that has lost an end is not one of keys.
#[test]
fn a_proof_of_half_a_range_or_of_nothing_does_not_hold() {
    for commitment in ["binary-blake3", "mpt"] {
        let stored = Stored::new(commitment);
        stored.run(&["put", "alice", "100", "bob", "20"]).done();
        let proof = stored.run(&["prove", "--range"]).done().json();
        let root = stored.root();
        let holds = |proof: &Value| {
            let file = stored.write("proof.json", &proof.to_string());
            cambium!("kv", "verify", file, "--root", root)
        };
        holds(&proof).done();
        for end in ["first", "last"] {
            let mut half = proof.clone();
            half.as_object_mut().unwrap().remove(end);
            holds(&half).fails(5, &["one end of a range"]);
        }
        let nothing = json!({ "commitment": commitment, "entries": [], "proof": proof["proof"] });
        holds(&nothing).fails(5, &["no key and no range"]);
    }
}

#[test]
fn a_line_without_end_is_refused_before_it_is_read_whole() {
    let stored = Stored::new("binary-blake3");
    let file = stored.write("long", &format!("alice {}\n", "x".repeat(40 << 20)));
    stored.run(&["load", &file]).fails(1, &["line 1", "bytes"]);
}

#[test]
fn wrong_arguments_are_explained() {
    let stored = Stored::new("binary-blake3");
    stored
        .run(&["get", "0x12"])
        .fails(2, &["64 hexadecimal digits"]);
    stored
        .run(&["put", "alice", "1", "bob"])
        .fails(2, &["bob", "has no value"]);
    stored
        .run(&["put", "alice", "0x1"])
        .fails(2, &["not hexadecimal digits"]);
    stored
        .run(&["put", "0xzz", "1"])
        .fails(2, &["64 hexadecimal digits"]);
    stored
        .run(&["list", "--from", &key_hex(2), "--to", &key_hex(1)])
        .fails(2, &["before"]);
    stored
        .run(&["prove", "alice", "--limit", "7"])
        .fails(2, &["--range"]);
    stored.run(&["put", "debt", "-5"]).done();
    assert_eq!(stored.say(&["get", "debt"]).done().stdout.trim(), "-5");
    stored
        .run(&["put", "alice", "@/nowhere/at/all"])
        .fails(1, &["/nowhere/at/all"]);
    stored.run(&["prove"]).fails(2, &["<KEY>"]);
    stored
        .run(&["prove", "alice", "--range"])
        .fails(2, &["--range"]);
    stored
        .run(&["get", "alice", "--commit", "7"])
        .fails(1, &["no commit 7"]);
    let root = B256::repeat_byte(1).to_string();
    stored
        .run(&["get", "alice", "--root", &root])
        .fails(1, &["has the root"]);
    let help = cambium!("kv", "--help").done().stdout;
    for word in ["keccak256", "@FILE", "cambium kv init", "rollback"] {
        assert!(help.contains(word), "{help}");
    }
}
