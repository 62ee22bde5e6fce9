//! Numbers, durations and times on the command line. Each has a range, which the error message states.

use std::process::{Command, Stdio};

use crate::support::run_binary;

// Rule F6: `--limit 0` is a usage error in every list, also over `--api`. The error states the allowed range.
// Rule F20: Every duration and instant on the command line has a range, which the error states. None causes a panic.
#[test]
fn arguments_out_of_range_are_wrong_usage() {
    let dir = tempfile::tempdir().unwrap();
    let lists: [&[&str]; 5] =
        [&["driver", "list"], &["order", "list"], &["alert", "list"], &["outbox", "list"], &["area", "changes"]];
    let mut refused: Vec<(Vec<&str>, &str)> = Vec::new();
    for list in lists {
        for limit in ["0", "10001", "-1"] {
            refused.push(([list, &["--limit", limit]].concat(), "1..=10000"));
        }
        refused.push((
            [list, &["--limit", "0", "--api", "http://127.0.0.1:1", "--key-file", "none"]].concat(),
            "1..=10000",
        ));
    }
    for time in ["300000y", "0s"] {
        refused.push((vec!["apikey", "list", "--unused-for", time], "must be 1s to 3650days"));
        refused
            .push((vec!["apikey", "create", "a", "--role", "admin", "--expires-in", time], "must be 1s to 3650days"));
        refused.push((vec!["apikey", "rotate", "--name", "a", "--overlap", time], "must be 1s to 3650days"));
        refused.push((vec!["area", "override", "A", "force-busy", "--for", time], "must be 1s to 3650days"));
        refused.push((vec!["area", "advise", "A", "--service-type", "RIDE", "--wait", time], "must be 1s to 7days"));
    }
    refused.push((vec!["dead", "list", "--older-than", "300000y"], "must be 0s to 3650days"));
    refused.push((vec!["job", "reschedule", "notify:ORD-1:7", "--in", "300000y"], "must be 0s to 3650days"));
    refused.push((
        vec!["job", "reschedule", "notify:ORD-1:7", "--at", "+262000-01-01T00:00:00Z"],
        "write 2030-01-01T08:00:00Z",
    ));
    refused.push((vec!["job", "reschedule", "notify:ORD-1:7", "--at", "0001-01-01T00:00:00Z"], "years 1970 to 9999"));
    refused.push((vec!["health", "--timeout", "300000y"], "must be 1ms to 1h"));
    refused.push((vec!["serve", "--bind", "8080"], "must be HOST:PORT"));
    for (args, said) in refused {
        let printed = run_binary(dir.path(), &args, &[]);
        assert_eq!(printed.code, Some(2), "{args:?}: {printed:?}");
        assert!(
            printed.stderr.contains(said) || printed.stderr.contains("unexpected argument '-1'"),
            "{args:?}: {printed:?}"
        );
    }
}

// Rule F25: A command exits without a panic when its output is no longer read.
#[test]
fn closed_pipe_ends_a_command_quietly() {
    let dir = tempfile::tempdir().unwrap();
    for args in [&["config", "check"][..], &["config", "show"], &["config", "show", "--json"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_dispatchq"));
        let ended = command.args(args).current_dir(dir.path()).stdin(Stdio::null()).stdout(writer).output().unwrap();
        let stderr = String::from_utf8(ended.stderr).unwrap();
        assert_eq!((ended.status.code(), stderr.as_str()), (Some(0), ""), "{args:?}");
    }
}
