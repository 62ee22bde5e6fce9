//! Output of the commands in commands.txt at the end of the run.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{placeholders, recording::Recording, world::World};

const COMMANDS: &str = include_str!("commands.txt");

/// Runs all commands and records one file per noun.
pub async fn show(world: &World, recording: &mut Recording) {
    let mut files: BTreeMap<&str, String> = BTreeMap::new();
    for line in COMMANDS.lines().filter(|line| !line.is_empty() && !line.starts_with(['#', '!'])) {
        let (waits, line) = line.strip_prefix("~ ").map_or((false, line), |line| (true, line));
        let noun = line.split(' ').next().expect("a word");
        let text = files.entry(noun).or_default();
        for (number, json) in [("001", false), ("002", true)] {
            text.push_str(&told(world, &line.replace("%1", number), json).unwrap_or_default());
            if waits {
                world.quiet().await;
            }
        }
    }
    for (noun, text) in files {
        recording.add(&format!("commands/{noun}.txt"), text);
    }
}

/// Checks that each of these commands is run, or excluded with a reason.
pub fn check_complete(commands: &[String]) {
    let listed = |command: &str| {
        COMMANDS.lines().any(|line| match line.strip_prefix("! ") {
            Some(left_out) => {
                left_out.split_once(':').is_some_and(|(name, _)| format!("{command} ").starts_with(&format!("{name} ")))
            }
            None => format!("{} ", line.trim_start_matches("~ ")).starts_with(&format!("{command} ")),
        })
    };
    let missing: Vec<_> = commands.iter().filter(|command| !listed(command)).collect();
    assert!(missing.is_empty(), "commands.txt lacks {missing:?}");
}

/// Returns the command with its output. With `json`, returns `None` if the command has no `--json`.
fn told(world: &World, line: &str, json: bool) -> Option<String> {
    let (line, input) = line.split_once(" < ").unwrap_or((line, ""));
    let with_values = with_values(world, line);
    let mut args: Vec<&str> = with_values.split_whitespace().collect();
    if json {
        args.push("--json");
    }
    let output = world.run(&args, &format!("{input}\n"));
    if json && output.err.contains("unexpected argument '--json'") {
        return None;
    }
    let is_json = serde_json::from_str::<Value>(&output.out).is_ok();
    let shown = if json || is_json { as_json(&output.out) } else { as_table(&output.out, args[0] == "config") };
    let json = if json { " --json" } else { "" };
    let mut text = format!("$ dispatchq {}{json}\n{shown}", placeholders::in_text(line));
    for line in as_table(&output.err, false).lines() {
        text.push_str(&format!("stderr: {line}\n"));
    }
    if output.code != 0 {
        text.push_str(&format!("exit code {}\n", output.code));
    }
    Some(text + "\n")
}

/// Replaces a placeholder in a command by a value from another command's JSON.
fn with_values(world: &World, line: &str) -> String {
    let Some((before, rest)) = line.split_once('{') else { return line.to_owned() };
    let (query, after) = rest.split_once('}').expect("a closing brace");
    let (command, pointer) = query.rsplit_once(' ').expect("a pointer");
    let output = world.run(&command.split(' ').collect::<Vec<_>>(), "");
    let found: Value = serde_json::from_str(&output.out).unwrap_or_default();
    let value = found.pointer(pointer).cloned().unwrap_or_else(|| Value::from("none"));
    let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    format!("{before}{value}{after}")
}

/// Returns a table with placeholders. Consecutive equal lines become one line with their count.
fn as_table(out: &str, keeps_durations: bool) -> String {
    let with_placeholders = if keeps_durations { placeholders::in_text(out) } else { placeholders::in_table(out) };
    counted(with_placeholders.lines().map(str::to_owned))
}

/// Returns one line for each item of a list, or the fields of an object.
fn as_json(out: &str) -> String {
    let Ok(value) = serde_json::from_str::<Value>(out) else { return counted(out.lines().map(placeholders::in_body)) };
    match placeholders::in_json(&value) {
        Value::Array(items) => counted(items.iter().map(Value::to_string)),
        Value::Object(fields) => {
            let mut text = String::new();
            for (name, value) in fields {
                match value {
                    Value::Array(items) if items.len() > 1 => {
                        text.push_str(&format!("{name}:\n{}", counted(items.iter().map(|item| format!("  {item}")))));
                    }
                    other => text.push_str(&format!("{name}: {other}\n")),
                }
            }
            text
        }
        other => format!("{other}\n"),
    }
}

/// Joins lines. Consecutive equal lines become one line with their count.
fn counted(lines: impl Iterator<Item = String>) -> String {
    let mut counted: Vec<(String, usize)> = Vec::new();
    for line in lines {
        match counted.last_mut().filter(|(last, _)| *last == line) {
            Some((_, count)) => *count += 1,
            None => counted.push((line, 1)),
        }
    }
    counted
        .into_iter()
        .map(|(line, count)| if count > 1 { format!("{line}  [{count} times]\n") } else { format!("{line}\n") })
        .collect()
}
