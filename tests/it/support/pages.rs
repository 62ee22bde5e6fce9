//! The commands of a page, and the output that the page shows for them.

use std::{path::Path, process::Command};

/// Separates the outputs of two steps.
const MARK: &str = "--- end of step ---";

/// A block of commands.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) commands: String,
    /// Output below the commands. `...` stands for text that is left out.
    shown: Option<String>,
}

/// Returns the `sh` blocks of a page. A `text` block with nothing between is the output of the block above it.
pub(crate) fn read_steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut is_next = false;
    for (n, part) in page.split("```").enumerate() {
        let (language, text) = part.split_once('\n').unwrap_or((part, ""));
        match (n % 2, language) {
            (0, _) => is_next = is_next && part.trim().is_empty(),
            (_, "sh") => {
                steps.push(Step { commands: text.to_owned(), shown: None });
                is_next = true;
            }
            (_, "text") if is_next => steps.last_mut().expect("a step").shown = Some(text.to_owned()),
            _ => is_next = false,
        }
    }
    steps
}

/// Runs the steps in one shell, in their order, and returns the output of each one. The first command that fails ends it.
#[track_caller]
pub(crate) fn run_steps(dir: &Path, prologue: &str, steps: &[Step], settings: &[(&str, &str)]) -> Vec<String> {
    let body: String = steps.iter().map(|step| format!("{}\nprintf '\\n{MARK}'\n", step.commands)).collect();
    let script = format!("set -eu\nexec 2>&1\n{prologue}\n{body}");
    let mut shell = Command::new("sh");
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("DISPATCHQ_")) {
        shell.env_remove(name);
    }
    shell.args(["-c", &script]).current_dir(dir).env("NO_PROXY", "*").envs(settings.iter().copied());
    let ran = shell.output().unwrap();
    let out = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{out}");
    out.split(MARK).take(steps.len()).map(str::to_owned).collect()
}

/// Checks that a step printed what the page shows, apart from white space and text that the page leaves out.
#[track_caller]
pub(crate) fn assert_shown(step: &Step, printed: &str) {
    let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let all = plain(printed);
    let mut rest = all.as_str();
    for part in step.shown.iter().flat_map(|shown| shown.split("...")).map(plain) {
        let found = rest.split_once(&part);
        rest = found.unwrap_or_else(|| panic!("{}\nprints no '{part}':\n{printed}", step.commands)).1;
    }
}
