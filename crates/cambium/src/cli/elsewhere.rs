//! Hints for users of other clients, which name some options and commands differently.

use clap::{
    Error,
    error::{ContextKind, ContextValue, ErrorKind},
};

/// Options of other clients, and the equivalents here.
const OPTIONS: [(&str, &str); 6] = [
    (
        "--cache",
        "the memory for everything is `--memory SIZE`, with a unit: `--memory 4G`",
    ),
    (
        "--topic",
        "topics have places: `--topic0` is the event's signature, and `--topic1` to `--topic3` are its arguments",
    ),
    (
        "--gcmode",
        "old states are kept by `--history flat` (values) or `--history archive` (values and proofs)",
    ),
    (
        "--state.scheme",
        "there is one scheme of the state; old states are kept by `--history flat` or `--history archive`",
    ),
    (
        "--verbosity",
        "`--log info` prints what the engine does, and `--log debug` more",
    ),
    (
        "--chaindata",
        "the directory of the database is `--datadir DIR`",
    ),
];

/// Commands of other clients, after the commands that they follow here, and what does the same.
const COMMANDS: [(&str, &str); 14] = [
    ("dump", "`cambium db dump FILE` writes a state as JSON"),
    (
        "attach",
        "there is no console: `cambium get`, `block`, `tx`, `logs` and `prove` answer its questions, and `cambium help` lists all commands",
    ),
    (
        "console",
        "there is no console: `cambium get`, `block`, `tx`, `logs` and `prove` answer its questions, and `cambium help` lists all commands",
    ),
    (
        "version",
        "`cambium --version` prints it, `cambium --version --json` with all formats",
    ),
    (
        "db import",
        "`cambium import FILE` imports blocks, and `cambium db load FILE` a dump of a state",
    ),
    (
        "db export",
        "`cambium export FILE` writes blocks, and `cambium db dump FILE` a state",
    ),
    (
        "db get",
        "`cambium get ADDRESS` prints an account or its slots",
    ),
    (
        "db inspect-trie",
        "`cambium db inspect` counts what is in a state",
    ),
    ("removedb", "remove the directory of the database"),
    (
        "dumpgenesis",
        "`cambium db dump FILE --block earliest` writes the genesis state",
    ),
    (
        "import-history",
        "`cambium import FILE ...` imports era1 files",
    ),
    ("import-era", "`cambium import FILE ...` imports era1 files"),
    (
        "init-state",
        "`cambium db load FILE` makes a database of a dump",
    ),
    (
        "node",
        "Cambium follows no network: `cambium import` imports files of blocks, and a node embeds the library",
    ),
];

/// Replaces the parser's guess by a hint, if what was given is known from elsewhere.
pub(crate) fn hint(error: &mut Error, arguments: &[String]) {
    let found = match error.kind() {
        ErrorKind::UnknownArgument => {
            let option = given(error, ContextKind::InvalidArg);
            // `export FILE` of other clients takes more than `import`.
            OPTIONS.into_iter().find(|(name, _)| *name == option)
        }
        ErrorKind::InvalidSubcommand => {
            let command = given(error, ContextKind::InvalidSubcommand);
            let before = arguments.iter().position(|argument| *argument == command);
            let before = before.and_then(|at| arguments.get(at.checked_sub(1)?));
            COMMANDS
                .into_iter()
                .find(|(name, _)| match name.split_once(' ') {
                    None => *name == command,
                    Some((parent, name)) => {
                        name == command && before.is_some_and(|before| before == parent)
                    }
                })
        }
        _ => None,
    };
    if let Some((_, hint)) = found {
        for guess in [
            ContextKind::SuggestedArg,
            ContextKind::SuggestedSubcommand,
            ContextKind::SuggestedCommand,
            ContextKind::SuggestedValue,
            // It shows the option that was guessed.
            ContextKind::Usage,
        ] {
            error.remove(guess);
        }
        let hint = ContextValue::StyledStrs(vec![hint.into()]);
        error.insert(ContextKind::Suggested, hint);
    }
}

fn given(error: &Error, kind: ContextKind) -> String {
    match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        _ => String::new(),
    }
}
