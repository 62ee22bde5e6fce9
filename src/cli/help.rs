//! Parser and help of the command line: groups of commands, help for options that many commands share, and errors in
//! plain words.

use std::{ffi::OsString, fmt::Write as _};

use clap::{Arg, Command, CommandFactory, FromArgMatches, Subcommand, builder::StyledStr, error::ErrorKind};

use super::{Cli, LocalCommand, remote::RemoteArgs};
use model::{
    json_words,
    plain_text::{escape_controls, is_plain},
};

/// Groups of commands in the top-level help. A command that is missing here is listed last.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Try it", &["dev", "replay", "partner-sim", "provider-sim", "bench"]),
    ("Run it", &["run", "serve", "work", "migrate", "config", "doctor", "health"]),
    ("Orders and areas", &["order", "driver", "area", "alert", "outbox"]),
    ("Partners and providers", &["partner", "binding", "server"]),
    ("Queues and jobs", &["queue", "job", "dead", "worker", "shards", "plan"]),
    ("People, keys and upkeep", &["apikey", "user", "push-keys", "privacy", "export", "check", "reconcile", "cleanup"]),
];

/// Help for options and arguments with the same meaning in every command. An argument's own help takes precedence.
const SHARED_HELP: [(&str, &str); 27] = [
    ("json", "Print JSON for programs"),
    ("reason", "Reason, kept in the record with the actor"),
    ("limit", "Print at most this many"),
    ("yes", "Do not ask for confirmation"),
    ("dry_run", "Print what would be done, and change nothing"),
    ("note", "Note, kept in the record"),
    ("area", "Id of the area; see: dispatchq area list"),
    ("queue", "Name of the queue; see: dispatchq queue list"),
    ("driver", "Id of the driver; see: dispatchq driver list"),
    ("order", "Only entries of this order"),
    ("binding", "Only entries of this binding"),
    ("service_type", "Service type, as in the configuration: [service_types.NAME]"),
    ("role", "Role of the key"),
    ("name", "Name of the key's holder"),
    ("state", "Only entries in this state"),
    ("lat", "Latitude of the pickup in degrees, such as -6.2088"),
    ("lng", "Longitude of the pickup in degrees, such as 106.8456"),
    ("payment_status", "Payment status, such as UNPAID, PENDING or PAID"),
    ("currency", "ISO 4217 currency of the amount, such as IDR"),
    ("api_key", "Key that callers must send"),
    ("callback_secret", "Secret that signs the callbacks"),
    ("redis", "Redis to measure"),
    ("concurrency", "Number of jobs that run at the same time"),
    ("status", "Status to force, or auto to end the override"),
    ("enabled", "Whether thresholds refuse requests"),
    ("bypass_enabled", "Whether loyal customers may exceed the threshold"),
    ("max_bypass_percentage", "Maximum orders of loyal customers beyond the threshold, in percent of the threshold"),
];

/// Meaning of the argument `id` in each group of commands.
const SUBJECTS: [(&str, &str); 8] = [
    ("order", "order"),
    ("driver", "driver"),
    ("binding", "binding"),
    ("plan", "plan"),
    ("server", "server"),
    ("user", "user"),
    ("outbox", "message"),
    ("alert", "alert"),
];

/// Returns the parser, with help for shared options. Local commands hide the options of the API.
pub fn command() -> Command {
    let root = Cli::command();
    let of_api: Vec<Arg> =
        root.get_arguments().filter(|arg| RemoteArgs::IDS.contains(&arg.get_id().as_str())).cloned().collect();
    let local = LocalCommand::augment_subcommands(Command::new("local"));
    root.mut_args(|arg| explain_arg(arg, None)).mut_subcommands(|group| {
        let subject = SUBJECTS.iter().find(|(name, _)| group.get_name() == *name).map(|(_, subject)| *subject);
        let is_local = local.find_subcommand(group.get_name()).is_some();
        // An option that a command has is not inherited.
        let hidden = of_api.iter().filter(|_| is_local).map(|arg| arg.clone().hide(true));
        explain_shared(group.args(hidden), subject)
    })
}

fn explain_shared(command: Command, subject: Option<&'static str>) -> Command {
    command.mut_args(|arg| explain_arg(arg, subject)).mut_subcommands(|below| explain_shared(below, subject))
}

fn explain_arg(arg: Arg, subject: Option<&str>) -> Arg {
    if arg.get_help().is_some() || arg.get_long_help().is_some() {
        return arg;
    }
    if let Some(subject) = subject.filter(|_| arg.get_id() == "id") {
        return arg.help(format!("Id of the {subject}"));
    }
    match SHARED_HELP.iter().find(|(id, _)| arg.get_id() == *id) {
        Some((_, help)) => arg.help(*help),
        None => arg,
    }
}

/// Parses the arguments of this process. On invalid usage and on `--help`, prints a message and exits.
pub fn parse() -> Cli {
    let args: Vec<OsString> = std::env::args_os().collect();
    parse_from(args.clone()).unwrap_or_else(|error| {
        if !error.use_stderr() {
            error.exit();
        }
        let text = error.render().ansi().to_string();
        let keeps_colours = console::colors_enabled_stderr() && args.iter().all(|arg| is_plain(&arg.to_string_lossy()));
        eprint!("{}", plain_words(&if keeps_colours { text } else { escape_args(&text, &args) }));
        std::process::exit(error.exit_code());
    })
}

/// Escapes control characters that an error repeats from the arguments, so that the terminal does not interpret them.
/// Removes colours.
fn escape_args(text: &str, args: &[OsString]) -> String {
    let mut text = text.to_owned();
    for arg in args.iter().map(|arg| arg.to_string_lossy()) {
        // For `--name=value`, errors repeat only the value.
        let value = arg.split_once('=').map(|(_, value)| value);
        for part in [Some(&*arg), value].into_iter().flatten().filter(|part| !is_plain(part)) {
            text = text.replace(part, &escape_controls(part));
        }
    }
    let lines: Vec<String> = console::strip_ansi_codes(&text).split('\n').map(escape_controls).collect();
    lines.join("\n")
}

fn parse_from(args: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let command = command();
    let template = grouped_template(&command);
    // The groups replace clap's list of commands.
    let mut command = command
        .mut_subcommands(|command| command.hide(true))
        .help_template(template)
        .override_usage("dispatchq [OPTIONS] <COMMAND>");
    let matches = command.clone().try_get_matches_from(args)?;
    let cli = Cli::from_arg_matches(&matches)?;
    if let (super::Command::Local(_), Some(option)) = (&cli.command, cli.remote.find_given()) {
        let name = matches.subcommand_name().unwrap_or_default();
        let text = format!("dispatchq {name} has no {option}: it works on this machine and its configuration");
        return Err(command.error(ErrorKind::ArgumentConflict, text));
    }
    Ok(cli)
}

/// Returns the template of the top-level help, with the commands in groups.
fn grouped_template(command: &Command) -> StyledStr {
    let header = command.get_styles().get_header();
    let literal = command.get_styles().get_literal();
    let grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
    let others: Vec<&str> =
        command.get_subcommands().map(Command::get_name).filter(|name| !grouped.contains(name)).collect();
    let mut text = String::from("{about-with-newline}\n{usage-heading} {usage}\n");
    for (title, names) in GROUPS.into_iter().chain([("Other", &others[..])]) {
        let listed = names.iter().filter_map(|name| command.find_subcommand(name)).collect::<Vec<_>>();
        if listed.is_empty() {
            continue;
        }
        let _ = writeln!(text, "\n{header}{title}:{header:#}");
        for command in listed {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let name = command.get_name();
            let _ = writeln!(text, "  {literal}{name:<12}{literal:#}  {about}");
        }
    }
    text += "\nHelp of one command: dispatchq COMMAND --help\n\n{all-args}{after-help}";
    text.into()
}

/// Replaces the messages of number parsers with plain words.
fn plain_words(text: &str) -> String {
    const TERMS: [&str; 5] = [
        "invalid digit found in string",
        "cannot parse integer from empty string",
        "cannot parse float from empty string",
        "invalid float literal",
        "number too large to fit in target type",
    ];
    TERMS.iter().fold(text.to_owned(), |text, term| text.replace(term, &json_words::plain_error(term)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths_without_help(command: &Command, path: &str, missing: &mut Vec<String>) {
        for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
            if arg.get_help().is_none() && arg.get_long_help().is_none() {
                missing.push(format!("{path} {}", arg.get_id()));
            }
        }
        for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
            paths_without_help(below, &format!("{path} {}", below.get_name()), missing);
        }
    }

    // Rule U15: Every option and every argument of every command has help.
    #[test]
    fn every_option_has_help() {
        let mut missing = Vec::new();
        paths_without_help(&command(), "dispatchq", &mut missing);
        assert!(missing.is_empty(), "without help:\n{}", missing.join("\n"));
    }

    // Rule U15: The help of the program lists every command in exactly one group.
    #[test]
    fn help_lists_every_command_once() {
        let command = command();
        let text = grouped_template(&command).to_string();
        for below in command.get_subcommands() {
            let start = format!("  {:<12}  ", below.get_name());
            assert_eq!(text.lines().filter(|line| line.starts_with(&start)).count(), 1, "{start}:\n{text}");
        }
        // Without the `lab` feature, some of the commands do not exist.
        if cfg!(feature = "lab") {
            for name in GROUPS.iter().flat_map(|(_, names)| names.iter()) {
                assert!(command.find_subcommand(name).is_some(), "unknown command {name}");
            }
        }
    }

    // Rule F25: Control characters of an argument, line ends included, are escaped in the error about it.
    #[test]
    fn errors_about_arguments_are_escaped() {
        let bad = "x\u{1b}]52;c;bHM=\u{7}\nerror: forged";
        for args in [
            vec!["dispatchq".to_owned(), "order".to_owned(), "show".to_owned(), bad.to_owned()],
            vec!["dispatchq".to_owned(), "driver".to_owned(), "list".to_owned(), format!("--limit={bad}")],
            vec!["dispatchq".to_owned(), bad.to_owned()],
        ] {
            let args: Vec<OsString> = args.into_iter().map(OsString::from).collect();
            let text = parse_from(args.clone()).unwrap_err().render().ansi().to_string();
            assert!(text.contains('\u{7}'), "clap repeats it: {text:?}");
            let text = escape_args(&text, &args);
            assert!(text.lines().all(is_plain) && !text.contains("\nerror: forged"), "{text:?}");
            assert!(text.contains(r"\u{1b}]52;c;bHM=\u{7}\u{a}error: forged"), "{text:?}");
        }
    }

    // Rule U10: A number that cannot be read is refused in plain words.
    #[test]
    fn wrong_numbers_are_refused_in_plain_words() {
        for (args, words) in [
            (&["dispatchq", "driver", "list", "--limit", "many"][..], "expected a whole number"),
            (
                &["dispatchq", "order", "create", "--service-type", "RIDE", "--lat", "x", "--lng", "1"],
                "expected a number",
            ),
        ] {
            let error = parse_from(args.iter().map(OsString::from)).unwrap_err();
            let text = plain_words(&error.render().to_string());
            assert!(text.contains(words), "{text}");
        }
    }
}
