//! Configuration files: values of options, read from a file instead of the command line.
//!
//! A file is TOML. Its keys are names of options; a table has the name of a command, and holds for that
//! command and those below it alone:
//!
//! ```toml
//! datadir = "/var/lib/cambium"
//! memory = "8G"
//!
//! [import]
//! threads = 8
//! ```
//!
//! An option that may be given several times may have a list.
//!
//! A file sets defaults of options. So the command line comes first, then the environment, then the file, and then the
//! program's own default. A file is read only if it is named.

use super::error::Failure;
use clap::{Arg, ArgAction, Command, builder::ValueParser, error::ContextValue};
use std::{
    ffi::OsString,
    fs::File,
    io::Read,
    ops::Range,
    path::{Path, PathBuf},
};
use toml::de::{DeTable, DeValue};

/// Help text on configuration files.
pub(crate) const CONFIG_HELP: &str = "\
Configuration: --config FILE, or CAMBIUM_CONFIG, names a file in TOML with values of options: memory =
\"8G\" for all commands, and threads = 8 in a table [import] for that command. The command line and the
environment come first. `cambium config` prints what a file and the environment set.";

/// Options that no file can have.
const NOT_IN_FILES: [&str; 3] = ["help", "version", "config"];

/// The value of an option in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// The command that it holds for, with those below it: empty for all.
    pub(crate) command: Vec<String>,
    /// Name of the option, without its dashes.
    pub(crate) key: String,
    pub(crate) value: SettingValue,
    /// Line in the file, from 1.
    pub(crate) line: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SettingValue {
    /// Whether a flag is given.
    Flag(bool),
    /// The text of a value.
    Text(String),
    /// Values of an option that may be given several times.
    List(Vec<String>),
}

/// Content of a file.
struct Parsed {
    settings: Vec<Setting>,
    /// The commands of its tables, with their lines.
    tables: Vec<(Vec<String>, usize)>,
}

/// A file that was read and compared with the options that there are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Config {
    pub(crate) file: Option<PathBuf>,
    pub(crate) settings: Vec<Setting>,
}

/// Largest size of a configuration file, in bytes.
const BYTES_MAX: u64 = 1 << 20;

fn read(file: &Path) -> Result<String, Failure> {
    let opened = File::open(file).map_err(Failure::io(file, "read"))?;
    let mut text = String::new();
    let len = opened.take(BYTES_MAX + 1).read_to_string(&mut text);
    match len.map_err(Failure::io(file, "read"))? as u64 > BYTES_MAX {
        false => Ok(text),
        true => Err(Failure::BadConfig {
            file: file.display().to_string(),
            line: 1,
            why: "a configuration file has at most 1 MiB".to_owned(),
        }),
    }
}

impl Config {
    /// Reads the file that the arguments or the environment name, if any.
    ///
    /// # Errors
    ///
    /// If it can't be read, is not TOML, or has a key or a value that no option has.
    pub(crate) fn read(arguments: &[OsString], commands: &Command) -> Result<Self, Failure> {
        let Some(file) = named(arguments) else {
            return Ok(Self::default());
        };
        let text = read(&file)?;
        let Parsed { settings, tables } = parse(&file, &text)?;
        let bad = |line: usize, why: String| Failure::BadConfig {
            file: file.display().to_string(),
            line,
            why,
        };
        for setting in &settings {
            check(setting, commands).map_err(|why| bad(setting.line, why))?;
        }
        // Those without settings.
        for (names, line) in &tables {
            command_of(names, commands).map_err(|why| bad(*line, why))?;
        }
        let file = Some(file);
        Ok(Self { file, settings })
    }

    /// Makes the values of the file the defaults of their options.
    pub(crate) fn apply(&self, commands: Command) -> Command {
        // Those of inner tables come last, and replace others.
        let mut settings: Vec<_> = self.settings.iter().collect();
        settings.sort_by_key(|setting| setting.command.len());
        let commands = commands;
        settings.into_iter().fold(commands, |commands, setting| {
            set(commands, &setting.command, setting)
        })
    }
}

/// The file that is named on the command line, or else by the environment.
fn named(arguments: &[OsString]) -> Option<PathBuf> {
    let mut arguments = arguments.iter().take_while(|argument| *argument != "--");
    while let Some(argument) = arguments.next() {
        if argument == "--config" {
            return arguments.next().map(PathBuf::from);
        }
        let text = argument.to_str();
        if let Some(file) = text.and_then(|text| text.strip_prefix("--config=")) {
            return Some(file.into());
        }
    }
    let file = std::env::var_os("CAMBIUM_CONFIG")?;
    (!file.is_empty()).then(|| file.into())
}

fn parse(file: &Path, text: &str) -> Result<Parsed, Failure> {
    let line = |at: usize| text[..at.min(text.len())].matches('\n').count() + 1;
    let bad = |at: usize, why: String| Failure::BadConfig {
        file: file.display().to_string(),
        line: line(at),
        why,
    };
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span: Range<usize>| span.start);
        bad(at, format!("this is no TOML: {}", error.message()))
    })?;
    let (mut settings, mut tables) = (Vec::new(), Vec::new());
    let mut within = vec![(Vec::<String>::new(), table.get_ref())];
    while let Some((command, table)) = within.pop() {
        for (key, value) in table {
            let (at, key) = (key.span().start, key.get_ref().to_string());
            let value = match value.get_ref() {
                DeValue::Table(inner) => {
                    let command: Vec<_> = command.iter().cloned().chain([key]).collect();
                    tables.push((command.clone(), line(at)));
                    within.push((command, inner));
                    continue;
                }
                DeValue::Boolean(given) => SettingValue::Flag(*given),
                DeValue::String(text) => SettingValue::Text(text.to_string()),
                DeValue::Integer(number) => SettingValue::Text(number.to_string()),
                DeValue::Array(items) => {
                    let text = |item: &DeValue<'_>| match item {
                        DeValue::String(text) => Some(text.to_string()),
                        DeValue::Integer(number) => Some(number.to_string()),
                        _ => None,
                    };
                    let texts = items.iter().map(|item| text(item.get_ref()));
                    let why = || format!("{key}: a list has texts and whole numbers");
                    let texts: Option<Vec<_>> = texts.collect();
                    SettingValue::List(texts.ok_or_else(|| bad(at, why()))?)
                }
                DeValue::Float(_) | DeValue::Datetime(_) => {
                    let why = format!("{key}: a value is a text, a whole number, true or false");
                    return Err(bad(at, why));
                }
            };
            settings.push(Setting {
                command: command.clone(),
                key,
                value,
                line: line(at),
            });
        }
    }
    settings.sort_by_key(|setting| setting.line);
    tables.sort_by_key(|(_, line)| *line);
    Ok(Parsed { settings, tables })
}

/// Whether an option is a flag, which takes no value.
fn is_flag(option: &Arg) -> bool {
    matches!(option.get_action(), ArgAction::SetTrue)
}

impl Setting {
    fn is_of(&self, option: &Arg) -> bool {
        let is_named = option.get_long() == Some(&self.key);
        is_named && !NOT_IN_FILES.contains(&self.key.as_str())
    }

    /// Whether the option is of the setting's kind. Options of one name may be of two kinds.
    fn fits(&self, option: &Arg) -> bool {
        match self.value {
            SettingValue::Flag(_) => is_flag(option),
            SettingValue::Text(_) => !is_flag(option),
            SettingValue::List(_) => matches!(option.get_action(), ArgAction::Append),
        }
    }
}

/// The command of a table.
fn command_of<'a>(names: &[String], commands: &'a Command) -> Result<&'a Command, String> {
    let inner = |command: &'a Command, name: &String| command.find_subcommand(name);
    let found = names.iter().try_fold(commands, inner);
    found.ok_or_else(|| {
        let table = names.join(".");
        format!("[{table}]: there is no such command: `cambium help` lists them")
    })
}

/// Compares a setting with the options that there are.
fn check(setting: &Setting, commands: &Command) -> Result<(), String> {
    let command = command_of(&setting.command, commands)?;
    let mut options = Vec::new();
    // Options of the whole program are the commands', too.
    options.extend(
        commands
            .get_arguments()
            .filter(|option| option.is_global_set()),
    );
    let mut within = vec![command];
    while let Some(command) = within.pop() {
        options.extend(command.get_arguments());
        within.extend(command.get_subcommands());
    }
    options.retain(|option| setting.is_of(option));
    let key = &setting.key;
    if options.is_empty() {
        let of = match &setting.command[..] {
            [] => "no command has".to_owned(),
            names => format!("`cambium {}` does not have", names.join(" ")),
        };
        return Err(format!("{key}: {of} an option --{key}"));
    }
    let takes_values = options.iter().any(|option| !is_flag(option));
    options.retain(|option| setting.fits(option));
    match &setting.value {
        SettingValue::List(_) if options.is_empty() => {
            Err(format!("{key}: it takes one value, and not a list"))
        }
        _ if options.is_empty() && takes_values => Err(format!(
            "{key}: the value is a text or a number, not true or false"
        )),
        _ if options.is_empty() => Err(format!("{key}: the value is true or false")),
        SettingValue::Flag(_) => Ok(()),
        SettingValue::Text(text) => all_parse(&options, key, text),
        SettingValue::List(texts) => {
            let mut texts = texts.iter();
            texts.try_for_each(|text| all_parse(&options, key, text))
        }
    }
}

fn all_parse(options: &[&Arg], key: &str, text: &str) -> Result<(), String> {
    let mut options = options.iter();
    let parsed = options.try_for_each(|option| parsed(option, text));
    parsed.map_err(|why| format!("{key} = {text:?}: {why}"))
}

/// Whether the option takes a text as its value.
fn parsed(option: &Arg, text: &str) -> Result<(), String> {
    let alone = option.clone().global(false).required(false);
    let alone = Arg::new(alone.get_id().clone())
        .long("option")
        .allow_hyphen_values(true)
        .action(ArgAction::Set)
        .value_parser(alone.get_value_parser().clone());
    let command = Command::new("option").no_binary_name(true).arg(alone);
    let Err(error) = command.try_get_matches_from(["--option", text]) else {
        return Ok(());
    };
    let known = error.get(clap::error::ContextKind::ValidValue);
    Err(match (known, std::error::Error::source(&error)) {
        (Some(ContextValue::Strings(known)), _) if !known.is_empty() => {
            format!("it is one of {}", known.join(", "))
        }
        (_, Some(source)) => source.to_string(),
        _ => "no value of this option".to_owned(),
    })
}

/// Sets the default of an option in a command, which `path` leads to, and in those below it.
fn set(command: Command, path: &[String], setting: &Setting) -> Command {
    match path {
        [] => {
            let command = command.mut_args(|option| match setting.is_of(&option) {
                true if setting.fits(&option) => with_default(option, &setting.value),
                _ => option,
            });
            command.mut_subcommands(|inner| set(inner, &[], setting))
        }
        [name, rest @ ..] => command.mut_subcommands(|inner| match inner.get_name() == name {
            true => set(inner, rest, setting),
            false => inner,
        }),
    }
}

fn with_default(option: Arg, value: &SettingValue) -> Arg {
    match value {
        SettingValue::Text(text) => option.required(false).default_value(text.clone()),
        SettingValue::List(texts) => option.required(false).default_values(texts),
        // As a flag, and as --flag=false to override the file.
        SettingValue::Flag(given) => option
            .action(ArgAction::Set)
            .value_parser(ValueParser::bool())
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .default_value(given.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::numbers::parse_count;
    use super::*;

    fn commands() -> Command {
        let memory = Arg::new("memory")
            .long("memory")
            .value_parser(parse_count::<u64>);
        let dir = Arg::new("dir")
            .long("dir")
            .required(true)
            .env("CAMBIUM_TEST_UNSET");
        let quiet = Arg::new("quiet")
            .long("quiet")
            .action(ArgAction::SetTrue)
            .global(true);
        let history = Arg::new("history").long("history");
        let topics = Arg::new("topic").long("topic").action(ArgAction::Append);
        let is_history = Arg::new("history")
            .long("history")
            .action(ArgAction::SetTrue);
        let import = Command::new("import").args([memory.clone(), dir, history, topics]);
        let check = Command::new("check").args([memory, is_history]);
        let db = Command::new("db").subcommand(check);
        Command::new("program")
            .arg(quiet)
            .subcommand(import)
            .subcommand(db)
    }

    fn settings(text: &str) -> Result<Config, String> {
        let parsed = parse(Path::new("c.toml"), text).map_err(|error| error.to_string())?;
        let Parsed { settings, tables } = parsed;
        for (names, line) in &tables {
            command_of(names, &commands()).map_err(|why| format!("line {line}: {why}"))?;
        }
        for setting in &settings {
            check(setting, &commands()).map_err(|why| format!("line {}: {why}", setting.line))?;
        }
        Ok(Config {
            file: None,
            settings,
        })
    }

    #[test]
    fn a_file_sets_defaults_and_tables_come_before_what_holds_for_all() {
        let text = "quiet = true\nmemory = 7\ndir = 'x'\nhistory = 'flat'\ntopic = ['a', 2]\n[db.check]\nmemory = 0x10\n";
        let config = settings(text).unwrap();
        let run = |words: &[&str]| {
            config
                .apply(commands())
                .try_get_matches_from(words)
                .unwrap()
        };
        let import = run(&["program", "import"]);
        let import = import.subcommand().unwrap().1;
        assert_eq!(import.get_one::<u64>("memory"), Some(&7));
        assert_eq!(import.get_one::<String>("dir").unwrap(), "x");
        assert_eq!(import.get_one::<String>("history").unwrap(), "flat");
        let topics: Vec<&String> = import.get_many("topic").unwrap().collect();
        assert_eq!(topics, ["a", "2"]);
        assert!(import.get_flag("quiet"));
        let told = run(&["program", "import", "--memory", "9", "--quiet=false"]);
        let told = told.subcommand().unwrap().1;
        assert_eq!(told.get_one::<u64>("memory"), Some(&9));
        assert!(!told.get_flag("quiet"));
        let check = run(&["program", "db", "check"]);
        let check = check.subcommand().unwrap().1.subcommand().unwrap().1;
        assert_eq!(check.get_one::<u64>("memory"), Some(&16));
        // The text is not for the flag of that name.
        assert!(!check.get_flag("history"));
    }

    #[test]
    fn what_is_wrong_in_a_file_is_said_with_its_line() {
        for (text, words) in [
            (
                "\nmemroy = 5",
                "line 2: memroy: no command has an option --memroy",
            ),
            (
                "[import]\nquite = true",
                "line 2: quite: `cambium import` does not have",
            ),
            (
                "[db]\n[db.chekc]\nmemory = 1",
                "[db.chekc]: there is no such command",
            ),
            ("memory = 'much'", "memory = \"much\": a number is written"),
            ("memory = true", "the value is a text or a number"),
            ("quiet = 'yes'", "the value is true or false"),
            (
                "memory = 1.5",
                "line 1: memory: a value is a text, a whole number",
            ),
            (
                "dir = ['x']",
                "line 1: dir: it takes one value, and not a list",
            ),
            ("topic = [[1]]", "line 1: topic: a list has texts"),
            ("\n[imprt]\n", "line 2: [imprt]: there is no such command"),
            ("help = true", "no command has an option --help"),
            ("dir = 'x'\nmemory =", "line 2: this is no TOML"),
            (
                "dir = 'x'\ndir = 'y'",
                "line 2: this is no TOML: duplicate key",
            ),
        ] {
            let told = settings(text).unwrap_err();
            assert!(told.contains(words), "{text:?}: {told}");
        }
    }
}
