//! Arguments of the commands by which the program describes itself.

use clap::Args as ClapArgs;
use clap_complete::Shell;
use std::path::PathBuf;

pub(crate) const COMPLETIONS_HELP: &str = "\
Examples:
  cambium completions bash > /etc/bash_completion.d/cambium
  cambium completions zsh > \"${fpath[1]}/_cambium\"
  cambium completions fish > ~/.config/fish/completions/cambium.fish";

pub(crate) const MAN_HELP: &str = "\
Examples:
  cambium man | man -l -
  cambium man --out /usr/local/share/man/man1";

#[derive(Debug, ClapArgs)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: Shell,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ManArgs {
    /// Write the pages of all commands to this directory [default: print that of the program]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}
