//! Information about the program: version, completions, manual pages, configuration.

use super::{
    args::{
        Args,
        about::{CompletionsArgs, ManArgs},
    },
    config::{Config, SettingValue},
    error::Failure,
    files,
    output::{Report, Table},
};
use cambium::db::FORMATS;
use clap::Command;
use clap_complete::generate;
use clap_mangen::Man;
use serde_json::{Map, Value, json};
use std::fs;

/// The version, commit, features and formats, as JSON.
pub(crate) fn version() -> Report {
    let formats = FORMATS.map(|(kind, number)| (kind.replace(' ', "_"), number.into()));
    let json = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "commit": option_env!("CAMBIUM_COMMIT"),
        "features": features(),
        "target": env!("CAMBIUM_TARGET"),
        "profile": env!("CAMBIUM_PROFILE"),
        "formats": formats.into_iter().collect::<Map<String, Value>>(),
    });
    Report::new(format!("cambium {}", Args::version()), json)
}

fn features() -> Vec<&'static str> {
    let names = env!("CAMBIUM_FEATURES").split(',');
    names.filter(|name| !name.is_empty()).collect()
}

pub(crate) fn completions(args: &CompletionsArgs) -> Report {
    let mut script = Vec::new();
    generate(args.shell, &mut Args::commands(), "cambium", &mut script);
    let script = String::from_utf8_lossy(&script).trim_end().to_owned();
    let json = json!({ "shell": args.shell.to_string(), "script": script });
    Report::new(script, json)
}

/// Prints the manual page of the program, or writes those of all commands to a directory.
pub(crate) fn man(args: &ManArgs) -> Result<Report, Failure> {
    let Some(dir) = &args.out else {
        let page = page(Args::commands());
        let json = json!({ "page": page });
        return Ok(Report::new(page, json));
    };
    files::make_directory(dir)?;
    let mut program = Args::commands().disable_help_subcommand(true);
    program.build();
    let mut files = Vec::new();
    let mut commands = vec![program];
    while let Some(command) = commands.pop() {
        let inner = command
            .get_subcommands()
            .filter(|inner| !inner.is_hide_set());
        commands.extend(inner.cloned());
        let file = dir.join(Man::new(command.clone()).get_filename());
        fs::write(&file, page(command)).map_err(Failure::io(&file, "written"))?;
        files.push(file.display().to_string());
    }
    files.sort();
    let text = format!("Wrote {} manual pages to {}.", files.len(), dir.display());
    Ok(Report::new(text, json!({ "files": files })))
}

fn page(command: Command) -> String {
    let mut page = Vec::new();
    // Writing to memory does not fail.
    let _ = Man::new(command).manual("Cambium").render(&mut page);
    String::from_utf8_lossy(&page).trim_end().to_owned()
}

/// Prints the values of options that come from a file and from the environment.
pub(crate) fn config(config: &Config) -> Report {
    let file = config.file.as_ref().map(|file| file.display().to_string());
    let mut table = Table::default().row("file", file.as_deref().unwrap_or("none"));
    let mut listed = Vec::new();
    for (name, option) in [
        ("CAMBIUM_DATADIR", "datadir"),
        ("CAMBIUM_LOG", "log"),
        ("CAMBIUM_LOG_FORMAT", "log-format"),
    ] {
        if let Some(value) = std::env::var_os(name).filter(|value| !value.is_empty()) {
            let value = value.to_string_lossy();
            table = table.row(option, format!("{value}  ({name})"));
            listed.push(json!({ "option": option, "value": value, "from": name }));
        }
    }
    let by_environment: Vec<_> = listed.iter().map(|set| set["option"].clone()).collect();
    for setting in &config.settings {
        let name = setting.command.iter().chain([&setting.key]);
        let name = name.cloned().collect::<Vec<_>>().join(".");
        let value = match &setting.value {
            SettingValue::Flag(given) => json!(given),
            SettingValue::Text(text) => json!(text),
            SettingValue::List(texts) => json!(texts),
        };
        let shown = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        let place = match by_environment.contains(&json!(setting.key)) {
            true => format!("line {}: the environment comes first", setting.line),
            false => format!("line {}", setting.line),
        };
        table = table.row(&name, format!("{shown}  ({place})"));
        listed.push(json!({ "option": name, "value": value, "line": setting.line }));
    }
    Report::new(
        table.to_string(),
        json!({ "file": file, "settings": listed }),
    )
}
