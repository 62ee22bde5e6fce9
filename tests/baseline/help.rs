//! The help of every command, collected by walking from `dispatchq --help`.

use std::process::Command;

/// Heading of the options that all commands over the API share.
const SHARED: &str = "Over HTTP:";

/// Returns the help of the program and all commands, and the commands without subcommands.
pub fn all() -> (String, Vec<String>) {
    let (mut text, mut leaves) = (String::new(), Vec::new());
    walk(&mut Vec::new(), &mut text, &mut leaves);
    (text, leaves)
}

fn walk(path: &mut Vec<String>, text: &mut String, leaves: &mut Vec<String>) {
    let help = of(path);
    let name = format!("dispatchq {}", path.join(" "));
    text.push_str(&format!("##### {name}\n"));
    match help.split_once(SHARED) {
        Some((own, shared)) => push_shared(text, own, shared),
        // The command works only on this machine.
        None => text.push_str(&help),
    }
    text.push('\n');
    if !help.contains("<COMMAND>") {
        leaves.push(path.join(" "));
        return;
    }
    for command in commands(&help, path.is_empty()) {
        path.push(command);
        walk(path, text, leaves);
        path.pop();
    }
}

/// Adds the help of a command that may use the API. The HTTP options are written in full once.
fn push_shared(text: &mut String, own: &str, shared: &str) {
    text.push_str(own);
    let (shared, rest) =
        shared.split_once("\n\nE").map_or((shared, String::new()), |(shared, rest)| (shared, format!("\n\nE{rest}")));
    let told = format!("{SHARED}{}\n", shared.trim_end());
    let new = !text.contains(&told);
    text.push_str(if new { &told } else { "(the same options over HTTP)\n" });
    text.push_str(&rest);
}

/// Runs the command without environment variables that change defaults, and without a terminal.
fn of(path: &[String]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_dispatchq")).args(path).arg("--help").env_clear().output();
    let output = output.expect("the binary runs");
    assert!(output.status.success(), "help of {path:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("help is text")
}

/// Returns the commands listed in a help text. The program's own help lists them under several headings.
fn commands(help: &str, is_program: bool) -> Vec<String> {
    let mut listed = false;
    let mut names = Vec::new();
    for line in help.lines() {
        if line.ends_with(':') && !line.starts_with(' ') {
            let is_options = line == "Options:" || line == "Over HTTP:";
            listed = if is_program { !is_options } else { line == "Commands:" };
        } else if let Some(rest) =
            line.strip_prefix("  ").filter(|rest| listed && rest.starts_with(char::is_alphabetic))
        {
            names.extend(rest.split_whitespace().next().map(str::to_owned));
        }
    }
    names.retain(|name| name != "help");
    names
}
