//! `dispatchq completions bash|elvish|fish|powershell|zsh`.

use std::process::ExitCode;

use clap_complete::{Shell, generate};

#[derive(Debug, clap::Args)]
#[command(after_help = "To install the completions, run one of these and open a new shell:\n  \
    bash  dispatchq completions bash > ~/.local/share/bash-completion/completions/dispatchq\n  \
    zsh   dispatchq completions zsh > ~/.zfunc/_dispatchq   (with 'fpath+=~/.zfunc' before 'compinit' in ~/.zshrc)\n  \
    fish  dispatchq completions fish > ~/.config/fish/completions/dispatchq.fish\n\n\
    Create the directory first if it does not exist: mkdir -p")]
pub(super) struct Args {
    /// Shell to complete commands in
    shell: Shell,
}

impl Args {
    pub(super) fn run(&self) -> ExitCode {
        let mut script = Vec::new();
        generate(self.shell, &mut super::command(), "dispatchq", &mut script);
        super::output::print_text(String::from_utf8_lossy(&script).trim_end());
        ExitCode::SUCCESS
    }
}
