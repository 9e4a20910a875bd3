//! Conventions of all commands: numbers in every form, quantities in JSON, `-` for standard input and output.

use crate::support;
use crate::support::{Fixture, Run, program, quantity};
use alloy_consensus::transaction::SignerRecoverable;
use serde_json::Value;
use std::{
    ffi::OsString,
    fs,
    io::Write,
    path::Path,
    process::{Command, Output, Stdio},
};

const BLOCKS: u64 = 4;

fn imported(more: &[&str]) -> Fixture {
    let fixture = Fixture::generate_with(60, BLOCKS, 8, more);
    fixture.import(&fixture.chain()).done();
    fixture
}

/// Runs the program with bytes on its standard input.
fn fed(input: &[u8], command: &mut Command) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().expect("it starts");
    // It may end before it has read all.
    let _ = child.stdin.take().expect("a pipe").write_all(input);
    child.wait_with_output().expect("it ends")
}

fn words<const N: usize>(args: [&dyn AsRef<std::ffi::OsStr>; N]) -> Vec<OsString> {
    args.iter().map(|arg| arg.as_ref().to_owned()).collect()
}

/// Runs the program with a file on its standard input.
fn fed_file<const N: usize>(file: &Path, args: [&dyn AsRef<std::ffi::OsStr>; N]) -> Run {
    let input = fs::read(file).expect("a file");
    Run::of(fed(&input, program().args(words(args))))
}

#[test]
fn numbers_are_read_in_every_form_wherever_a_number_goes() {
    let dir = tempfile::tempdir().unwrap();
    let sized = |accounts: &str, blocks: &str, gas: &str| {
        let out = dir.path().join(accounts);
        let run = cambium!(
            "workload",
            "--json",
            "--out",
            out,
            "--accounts",
            accounts,
            "--blocks",
            blocks,
            "--gas",
            gas,
            "--erc20",
            "50%"
        );
        run.done().json()
    };
    let written = sized("2k", "0x3", "1M");
    let plain = sized("2000", "3", "1000000");
    assert_eq!(written["head_hash"], plain["head_hash"]);
    assert_eq!(written["accounts"], 2_005, "with contracts");
    assert_eq!(sized("1Ki", "0", "1M")["accounts"], 1_029);

    let fixture = imported(&[]);
    let db = fixture.db();
    let key = "0x00000000000000000000000000000000000000ff";
    let at = |block: &str| cambium!("get", key, "--block", block, "-d", db, "--json");
    assert_eq!(at("0x2").done().json()["block_number"], "0x2");
    at("1k").fails(1, &["no block 1000", "head is 4"]);
    for (args, told) in [
        (
            &["import", "x", "--threads", "0"][..],
            "'--threads <N>': between 1 and 1024",
        ),
        (&["import", "x", "--threads", "5M"], "between 1 and 1024"),
        (
            &["import", "x", "--batch", "0"],
            "'--batch <N>': between 1 and 1024",
        ),
        (
            &["import", "x", "--read-ahead", "1M"],
            "'--read-ahead <N>': at most 65536",
        ),
        (
            &["import", "x", "--keep-blocks", "many"],
            "'--keep-blocks <N>': a number is written",
        ),
        (
            &["import", "x", "--memory", "1k"],
            "'--memory <SIZE>': between 1M and ",
        ),
        (
            &["import", "x", "--memory", "900T"],
            "'--memory <SIZE>': between 1M and ",
        ),
        (
            &["import", "x", "--memory", "lots"],
            "a size is written as 512M",
        ),
        (
            &["import", "x", "--history", "flat=0"],
            "not a number of blocks: between 1 and 18446744073709551615",
        ),
        (
            &["get", key, "--block", "-1"],
            "'--block <BLOCK>': a block is latest",
        ),
        (
            &["get", key, "--block", "99999999999999999999"],
            "at most 18446744073709551615",
        ),
        (
            &["get", key, "--block", "0x1234567890abcdef1"],
            "64 digits after 0x, and not 17",
        ),
        (
            &["kv", "list", "--limit", "0"],
            "'--limit <N>': between 1 and 18446744073709551615",
        ),
        (&["kv", "rollback", "0"], "'<N>': between 1 and "),
        (
            &["prove-range", "--limit", "99999999999999999999"],
            "'--limit <N>': between 1 and 18446744073709551615",
        ),
        (
            &["db", "inspect", "--top", "99999999999999999999"],
            "'--top <N>': between 1 and 18446744073709551615",
        ),
        (
            &["get", key, "--storage", "--limit", "99999999999999999999"],
            "'--limit <N>': between 1 and 18446744073709551615",
        ),
        (
            &["logs", "--limit", "99999999999999999999"],
            "'--limit <N>': at most 18446744073709551615",
        ),
        (
            &["export", "x", "--from", "1.5"],
            "'--from <BLOCK>': a number is written",
        ),
    ] {
        let args = args.iter().copied().chain(["-d", "nowhere"]);
        support::cambium(args).fails(2, &[told]);
    }
    let out = dir.path().join("none");
    cambium!("workload", "--out", out, "--fresh", "101")
        .fails(2, &["'--fresh <PCT>': at most 100"]);
    assert!(!out.exists());
}

/// Whether a text is a quantity, a hash or other bytes as JSON-RPC has them.
fn is_hex(value: &Value) -> bool {
    let digits = value.as_str().and_then(|text| text.strip_prefix("0x"));
    digits.is_some_and(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

/// Checks what belongs to a chain, wherever it is in the JSON.
fn check_quantities(command: &str, json: &Value) {
    const OF_THE_CHAIN: [&str; 16] = [
        "chain_id",
        "nonce",
        "balance",
        "gas",
        "gas_used",
        "kept_from",
        "import_from",
        "hash",
        "state_root",
        "block",
        "from",
        "to",
        "code_hash",
        "parent",
        "pre_root",
        "gasUsed",
    ];
    match json {
        Value::Object(fields) => {
            for (name, value) in fields {
                let is_counted = name.ends_with("_number") || name.ends_with("_hash");
                if is_counted || OF_THE_CHAIN.contains(&name.as_str()) {
                    let is_apart = value.is_null() || value.is_object();
                    assert!(is_apart || is_hex(value), "{command}: {name} is {value}");
                }
                check_quantities(command, value);
            }
        }
        Value::Array(values) => values
            .iter()
            .for_each(|value| check_quantities(command, value)),
        _ => {}
    }
}

#[test]
fn each_command_prints_one_object_with_quantities_as_in_json_rpc() {
    let fixture = imported(&["--fork", "amsterdam"]);
    let db = fixture.db();
    let sender = fixture.blocks()[0].decode().unwrap().body.transactions[0]
        .recover_signer()
        .unwrap()
        .to_string();
    let root = fixture.blocks()[BLOCKS as usize - 1]
        .decode()
        .unwrap()
        .header
        .state_root
        .to_string();
    let proof = fixture.path("proof.json");
    let range = fixture.path("range.json");
    let witness = fixture.path("witness.json");
    let kept = [
        (&proof, cambium!("prove", sender, "0x1", "-d", db)),
        (&range, cambium!("prove-range", "--limit", "5", "-d", db)),
        (&witness, cambium!("witness", "2", "-d", db)),
    ];
    for (file, run) in kept {
        fs::write(file, run.done().stdout).unwrap();
    }
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let (out, copy) = (path(&fixture.path("out.rlp")), path(&fixture.path("copy")));
    let (genesis, proof, range, witness) = (
        path(&fixture.genesis()),
        path(&proof),
        path(&range),
        path(&witness),
    );
    let of_database: &[&[&str]] = &[
        &["init", "--genesis", &genesis],
        &["import", &path(&fixture.chain())],
        &["export", &out],
        &["get", &sender, "0x1"],
        &["block", "2"],
        &["receipts", "2"],
        &["diff", "1", "3"],
        &["bal", "2"],
        &["prove", &sender],
        &["prove-range", "--limit", "3"],
        &["witness", "3"],
        &["db", "stats"],
        &["db", "branches"],
        &["db", "check"],
        &["db", "backup", &copy],
        &["db", "repair", "--dry-run"],
        &["history", "build"],
        &["db", "check", "--history"],
        &["set-head", "latest", "--safe", "2"],
        &["unwind", "--to", "3"],
        // Failures, too.
        &["get", &sender, "--block", "99"],
        &["import", &genesis],
    ];
    let alone: &[&[&str]] = &[
        &["verify", &proof, "--root", &root],
        &["verify-range", &range, "--root", &root],
        &["stateless", &witness, "--genesis", &genesis],
        &["config"],
        &["completions", "bash"],
        &["man"],
        &["--version"],
        &["verify", &proof],
        &["frobnicate"],
    ];
    let with_database = of_database.iter().map(|args| {
        let args = args.iter().map(|arg| (*arg).to_owned());
        args.chain(["-d".to_owned(), path(&db)]).collect::<Vec<_>>()
    });
    let alone = alone
        .iter()
        .map(|args| args.iter().map(|arg| (*arg).to_owned()).collect());
    for mut args in with_database.chain(alone) {
        let command = args.join(" ");
        args.push("--json".to_owned());
        let run = support::cambium(&args);
        let json = run.json();
        assert!(json.is_object(), "{command}: {json}");
        assert_eq!(run.stdout.lines().count(), 1, "{command}");
        if run.code != 0 {
            assert_eq!(json["exit_code"], run.code, "{command}");
            assert!(json["error"].is_string(), "{command}");
        }
        check_quantities(&command, &json);
    }
    let help = support::cambium(["--help"]).done().stdout;
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for told in [
        "hexadecimal, as in Ethereum's JSON-RPC",
        "Counts, bytes, seconds and rates are numbers",
    ] {
        assert!(help.contains(told), "{told}");
    }
}

#[test]
fn a_hyphen_is_standard_input_or_output_for_every_file() {
    let fixture = imported(&["--fork", "amsterdam"]);
    let (db, genesis) = (fixture.db(), fixture.genesis());
    let exported = program()
        .args(words([&"export", &"-", &"-d", &db]))
        .output()
        .unwrap();
    assert!(exported.status.success());
    // Only the blocks.
    assert_eq!(exported.stdout, fs::read(fixture.chain()).unwrap());
    assert!(String::from_utf8_lossy(&exported.stderr).contains("Wrote 4 blocks"));
    let lists = fixture.path("out.bal");
    let lists_alone = words([&"export", &"/dev/null", &"--access-lists", &"-", &"-d", &db]);
    fs::write(&lists, program().args(lists_alone).output().unwrap().stdout).unwrap();

    // Piped into an import, with the genesis from another file, and the other way round.
    let chain = fixture.chain();
    let piped = fixture.path("piped");
    let run = fed_file(
        &chain,
        [
            &"import",
            &"-",
            &"--genesis",
            &genesis,
            &"-d",
            &piped,
            &"--json",
        ],
    );
    assert_eq!(run.done().json()["head_number"], quantity(BLOCKS));
    let other = fixture.path("other");
    fed_file(&genesis, [&"init", &"--genesis", &"-", &"-d", &other]).done();
    fed_file(&genesis, [&"init", &"--genesis", &"-", &"-d", &other]).done();
    let with_lists = [
        &"import" as &dyn AsRef<_>,
        &chain,
        &"--access-lists",
        &"-",
        &"-d",
        &other,
        &"--json",
    ];
    assert_eq!(fed_file(&lists, with_lists).done().json()["listed"], BLOCKS);
    // From a redirected file, which is not a pipe, from its present position on.
    let mut command = program();
    command.args(words([&"import", &"-", &"-d", &other, &"--json"]));
    let redirected = command
        .stdin(fs::File::open(&chain).unwrap())
        .output()
        .unwrap();
    assert_eq!(Run::of(redirected).done().json()["skipped"], BLOCKS);

    let address = "0x00000000000000000000000000000000000000ff";
    let proof = cambium!("prove", address, "-d", db).done().stdout;
    let root = fixture.blocks()[BLOCKS as usize - 1]
        .decode()
        .unwrap()
        .header
        .state_root
        .to_string();
    let verified = fed(
        proof.as_bytes(),
        program().args(["verify", "-", "--root", &root]),
    );
    Run::of(verified).done();
    let range = cambium!("prove-range", "--limit", "5", "-d", db)
        .done()
        .stdout;
    let verified = fed(
        range.as_bytes(),
        program().args(["verify-range", "-", "--root", &root]),
    );
    Run::of(verified).done();
    let witness = cambium!("witness", "2", "-d", db).done().stdout;
    let args = words([&"stateless", &"-", &"--genesis", &genesis]);
    Run::of(fed(witness.as_bytes(), program().args(args))).done();
    let file = fixture.write("witness.json", witness.as_bytes());
    fed_file(&genesis, [&"stateless", &file, &"--genesis", &"-"]).done();
    let store = fixture.path("store");
    cambium!("kv", "init", "-d", store).done();
    let loaded = fed(
        b"alice 1\nbob 2\n",
        program().args(words([&"kv", &"load", &"-", &"-d", &store])),
    );
    Run::of(loaded).done();
    let put = fed(
        b"three",
        program().args(words([&"kv", &"put", &"carol", &"@-", &"-d", &store])),
    );
    Run::of(put).done();
    assert_eq!(
        cambium!("kv", "get", "carol", "-d", store).done().stdout,
        "three\n"
    );

    // One of a command, and nothing beside it on standard output.
    for args in [
        words([&"import", &"-", &"-", &"-d", &db]),
        words([&"import", &"-", &"--genesis", &"-", &"-d", &db]),
        words([&"export", &"-", &"--access-lists", &"-", &"-d", &db]),
        words([&"stateless", &"-", &"--genesis", &"-"]),
        words([&"kv", &"put", &"a", &"@-", &"b", &"@-", &"-d", &store]),
    ] {
        support::cambium(args).fails(2, &["stands for one"]);
    }
    cambium!("export", "-", "--json", "-d", db).fails(2, &["--json and -", "name a file"]);
}

#[test]
fn what_is_wrong_with_standard_input_is_said_as_of_a_file() {
    let fixture = imported(&[]);
    let db = fixture.db();
    let run = |input: &[u8], args: &[&str]| Run::of(fed(input, program().args(args)));
    let db = db.to_str().unwrap();
    run(b"These are no blocks.", &["import", "-", "-d", db])
        .fails(2, &["standard input: it is text, and blocks were expected"]);
    run(b"", &["import", "-", "-d", db])
        .fails(3, &["standard input: it is empty", "blocks were expected"]);
    run(b"{}", &["verify", "-", "--root", &format!("0x{:064}", 0)]).fails(5, &["standard input"]);
    let genesis = fs::read_to_string(fixture.genesis()).unwrap();
    let twice = r#""alloc": { "0x00000000000000000000000000000000000000ff": {"balance": "1"},
        "00000000000000000000000000000000000000FF": {"balance": "1"},"#;
    let genesis = genesis.replace("\"alloc\": {", twice);
    let none = fixture.path("none");
    let init = ["init", "--genesis", "-", "-d", none.to_str().unwrap()];
    run(genesis.as_bytes(), &init).fails(1, &["standard input: alloc has an account", "twice"]);
}

#[test]
fn empty_files_are_named_with_what_was_expected() {
    let fixture = imported(&["--access-lists"]);
    let db = fixture.db();
    let empty = fixture.write("empty", b"");
    let root = format!("0x{:064}", 0);
    let expects = |run: Run, code: i32, what: &str| run.fails(code, &["empty: it is empty", what]);
    expects(
        cambium!("import", &empty, "-d", db),
        3,
        "blocks were expected",
    );
    let chain = fixture.chain();
    expects(
        cambium!("import", chain, "--access-lists", &empty, "-d", db),
        3,
        "access lists were expected",
    );
    expects(
        cambium!("verify", &empty, "--root", root),
        1,
        "an account proof was expected",
    );
    expects(
        cambium!("verify-range", &empty, "--root", root),
        1,
        "a proof of a range was expected",
    );
    expects(
        cambium!("kv", "verify", &empty, "--root", root),
        1,
        "a proof of entries was expected",
    );
    expects(
        cambium!("stateless", &empty, "--chain", "mainnet"),
        1,
        "a witness was expected",
    );
    let none = fixture.path("none");
    expects(
        cambium!("init", "--genesis", &empty, "-d", none),
        1,
        "a genesis file is JSON",
    );
    let store = fixture.path("store");
    cambium!("kv", "init", "-d", store).done();
    expects(
        cambium!("kv", "load", &empty, "-d", store),
        1,
        "a line of a key and a value was expected",
    );
    // Packed nothing is nothing as well.
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packer.write_all(b"").unwrap();
    let packed = fixture.write("packed.rlp.gz", &packer.finish().unwrap());
    cambium!("import", packed, "-d", db).fails(3, &["packed.rlp.gz: it has no block"]);
}

#[test]
fn lists_of_another_chain_are_found_at_the_first_one() {
    let make = |seed: &str| {
        Fixture::generate_with(
            60,
            BLOCKS,
            8,
            &["--access-lists", "--force", "--fresh", seed],
        )
    };
    let (fixture, other) = (make("10"), make("50"));
    let (db, lists) = (fixture.db(), other.path("access-lists.rlp"));
    let genesis = fixture.genesis();
    cambium!(
        "import",
        fixture.chain(),
        "--genesis",
        genesis,
        "--access-lists",
        lists,
        "-d",
        db
    )
    .fails(
        1,
        &[
            "access-lists.rlp: its next access list is that of block 1 (0x",
            "the lists are of other blocks",
            "The database is at block 0 (0x",
            "help: name the file of access lists",
        ],
    );
}

#[test]
fn a_check_counts_what_is_in_the_pages_and_in_the_log() {
    let fixture = Fixture::generate(60, BLOCKS, 8);
    let genesis: Value = serde_json::from_slice(&fs::read(fixture.genesis()).unwrap()).unwrap();
    let alloc = genesis["alloc"].as_object().unwrap();
    let of = |field: &str| {
        let fields = alloc.values().map(|account| &account[field]);
        fields
            .filter(|field| !field.is_null())
            .cloned()
            .collect::<Vec<_>>()
    };
    let slots: usize = of("storage")
        .iter()
        .map(|slots| slots.as_object().unwrap().len())
        .sum();
    let mut codes: Vec<_> = of("code").iter().map(Value::to_string).collect();
    codes.sort();
    codes.dedup();
    assert!(alloc.len() > 60 && slots > 0 && !codes.is_empty());
    let check = || {
        cambium!("db", "check", "--json", "-d", fixture.db())
            .done()
            .json()
    };
    cambium!("init", "--genesis", fixture.genesis(), "-d", fixture.db()).done();
    let counted = |check: &Value, name: &str| check[name].as_u64().unwrap();
    let made = check();
    assert_eq!(counted(&made, "accounts"), alloc.len() as u64);
    assert_eq!(counted(&made, "slots"), slots as u64);
    assert_eq!(counted(&made, "codes"), codes.len() as u64);
    assert_eq!(
        (counted(&made, "blocks"), counted(&made, "entries")),
        (1, 0)
    );
    assert_eq!(made["snapshot_number"], "0x0");
    // Blocks are in the log, and their accounts not in the pages.
    fixture.import(&fixture.chain()).done();
    let imported = check();
    assert_eq!(counted(&imported, "blocks"), BLOCKS + 1);
    if imported["snapshot_number"] == "0x0" {
        assert_eq!(imported["accounts"], made["accounts"]);
        assert_eq!(imported["pages"], made["pages"]);
    }
    let stats = cambium!("db", "stats", "--json", "-d", fixture.db())
        .done()
        .json();
    assert_eq!(stats["pages"], imported["pages"]);
    assert_eq!(stats["codes"], imported["codes"]);
}

#[test]
fn the_first_block_has_no_witness_and_is_said_to_have_none() {
    let fixture = imported(&[]);
    let told = ["block 0 (0x", "made and not executed", "no witness"];
    for block in ["0", "earliest"] {
        cambium!("witness", block, "-d", fixture.db()).fails(1, &told);
    }
    cambium!("witness", "99", "-d", fixture.db()).fails(1, &["no block 99", "head is 4"]);
    cambium!("witness", "latest", "-d", fixture.db()).done();
}
