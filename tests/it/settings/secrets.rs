//! Guessable keys are refused, every secret may come from a file or a variable, and no error or listing shows one.

use std::path::Path;

use crate::support::{Printed, run_binary};

const GOOD: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// Runs `config check` with this file.
fn check(dir: &Path, text: &str, variables: &[(&str, &str)]) -> Printed {
    std::fs::write(dir.join("config.toml"), text).unwrap();
    run_binary(dir, &["config", "check"], variables)
}

// Fault S6
#[test]
fn a_key_that_could_be_guessed_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let partner = |more: &str| format!("[partners.bbd]\nurl = \"https://p.example.com\"\n{more}\n");
    let webhook = |more: &str| format!("[channels.app]\ntype = \"webhook\"\nurl = \"https://a.example.com\"\n{more}\n");
    let voice = |token: &str| {
        format!(
            "[channels.calls]\ntype = \"voice\"\naccount = \"AC1\"\nfrom = \"+15550100000\"\n\
             callback_url = \"https://d.example.com\"\n{token}\n"
        )
    };
    // The first key has 23 bytes; the minimum is 24.
    let (short, least) = ("whsec_QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=", "whsec_QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFB");
    for key in ["whsec_", "whsec_c2hvcnQ=", short, " whsec_ "] {
        for text in [
            partner(&format!("callback_secret = \"{key}\"")),
            partner(&format!("callback_secret = \"{GOOD}\"\ncallback_secret_previous = \"{key}\"")),
            webhook(&format!("secret = \"{key}\"")),
        ] {
            let refused = check(dir.path(), &text, &[]);
            assert_eq!(refused.code, Some(1), "{text}: {refused:?}");
            assert!(refused.stderr.contains("at least 24 bytes"), "{text}: {refused:?}");
        }
        // The value as read from a file or a variable.
        std::fs::write(dir.path().join("key"), format!("{key}\n")).unwrap();
        for how in ["callback_secret_file = \"key\"", "callback_secret_env = \"OUR_KEY\""] {
            let refused = check(dir.path(), &partner(how), &[("OUR_KEY", key)]);
            assert_eq!(refused.code, Some(1), "{how}, {key}: {refused:?}");
        }
    }
    for token in ["token = \"\"", "token = \"0123456789abcdef\"", "token_env = \"EMPTY\""] {
        let refused = check(dir.path(), &voice(token), &[("EMPTY", "")]);
        assert_eq!(refused.code, Some(1), "{token}: {refused:?}");
    }
    for text in [
        partner(&format!("callback_secret = \"{least}\"")),
        webhook(&format!("secret = \"{least}\"")),
        voice("token = \"0123456789abcdef0123456789abcdef\""),
    ] {
        let accepted = check(dir.path(), &text, &[]);
        assert_eq!(accepted.code, Some(0), "{text}: {accepted:?}");
    }
}

// Fault S6
#[test]
fn secrets_come_from_file_or_variable() {
    let dir = tempfile::tempdir().unwrap();
    let tables = [
        ("[redis]", "url", "redis://:hunter2@127.0.0.1:1"),
        ("[database]", "url", "postgres://u:hunter2@h/d"),
        ("[partners.bbd]\nurl = \"https://p.example.com\"", "api_key", "hunter2"),
        ("[partners.bbd]\nurl = \"https://p.example.com\"", "callback_secret", GOOD),
        ("[partners.bbd]\nurl = \"https://p.example.com\"", "callback_secret_previous", GOOD),
        ("[channels.x]\ntype = \"webhook\"", "url", "https://h.example.com/hunter2"),
        ("[channels.x]\ntype = \"webhook\"\nurl = \"https://h.example.com\"", "secret", GOOD),
        ("[channels.x]\ntype = \"slack\"", "url", "https://h.example.com/hunter2"),
        (
            "[channels.x]\ntype = \"email\"\nfrom = \"a@b.c\"\nto = [\"a@b.c\"]\nhost = \"h\"\nusername = \"u\"",
            "password",
            "hunter2",
        ),
        ("[channels.x]\ntype = \"ticket\"", "url", "https://h.example.com/hunter2"),
        ("[channels.x]\ntype = \"ticket\"\nurl = \"https://h.example.com\"", "token", "hunter2"),
        (
            "[channels.x]\ntype = \"voice\"\naccount = \"AC1\"\nfrom = \"+15550100000\"\ncallback_url = \"https://d\"",
            "token",
            "hunter2hunter2hunter2hunter2",
        ),
    ];
    for (table, name, secret) in tables {
        std::fs::write(dir.path().join("secret"), format!("{secret}\n")).unwrap();
        for given in [format!("{name}_file = \"secret\""), format!("{name}_env = \"OUR_SECRET\"")] {
            let text = format!("{table}\n{given}\n");
            let accepted = check(dir.path(), &text, &[("OUR_SECRET", secret)]);
            assert_eq!(accepted.code, Some(0), "{text}: {accepted:?}");
            let shown = run_binary(dir.path(), &["config", "show"], &[("OUR_SECRET", secret)]);
            assert_eq!(shown.code, Some(0), "{text}: {shown:?}");
            assert!(!format!("{shown:?}").contains("hunter2") && !format!("{shown:?}").contains(GOOD), "{shown:?}");
        }
        for missing in [format!("{name}_file = \"nowhere\""), format!("{name}_env = \"NOT_SET_ANYWHERE\"")] {
            let text = format!("{table}\n{missing}\n");
            assert_eq!(check(dir.path(), &text, &[]).code, Some(1), "{text}");
        }
        let empty = format!("{table}\n{name}_env = \"EMPTY\"\n");
        assert_eq!(check(dir.path(), &empty, &[("EMPTY", "")]).code, Some(1), "{empty}");
    }
}

// Fault S7
#[test]
fn config_error_names_place_never_text() {
    let dir = tempfile::tempdir().unwrap();
    for slip in [
        "url = \"postgres://u:hunter2@h/d",
        "url = postgres://u:hunter2@h/d",
        "url = 'postgres://u:hunter2@h/d\"",
        "url \"postgres://u:hunter2@h/d\"",
        "url = \"hunter2\" \"hunter2\"",
        "url = \"a\"\nurl = \"hunter2\"",
        "url = \"\\hunter2\"",
        "url = \"\\u12hunter2\"",
        "url: hunter2",
        "url = hunter2",
        "url = 12hunter2",
        "url = [\"hunter2\"",
        "url = { hunter2 }",
    ] {
        let refused = check(dir.path(), &format!("# ours\n[database]\n{slip}\n"), &[]);
        assert_eq!(refused.code, Some(1), "{slip}: {refused:?}");
        assert!(refused.stderr.contains("config.toml") && refused.stderr.contains("column"), "{slip}: {refused:?}");
        assert!(refused.stderr.contains("line 3") || refused.stderr.contains("line 4"), "{slip}: {refused:?}");
        assert!(!refused.stderr.contains("hunter2"), "{slip}: {refused:?}");
    }
    // Valid syntax with a secret in the wrong setting.
    for slip in [
        "database = \"postgres://u:hunter2@h/d\"",
        "[database]\nmax_connections = \"hunter2\"",
        "[channels.mail]\ntype = \"email\"\nport = \"hunter2\"",
        "[channels.mail]\ntype = \"email\"\nfrom = [\"hunter2\"]",
        "[database]\nurl = [\"hunter2\"]",
    ] {
        let refused = check(dir.path(), slip, &[]);
        assert_eq!(refused.code, Some(1), "{slip}: {refused:?}");
        assert!(refused.stderr.contains("must be ") && !refused.stderr.contains("hunter2"), "{slip}: {refused:?}");
    }
}

// Fault S20b
#[test]
fn credentials_in_urls_are_hidden() {
    let dir = tempfile::tempdir().unwrap();
    let text = "[channels.calls]\ntype = \"voice\"\nurl = \"https://hunter2:hunter3@voice.example.com\"\naccount = \"AC1\"\n\
                token = \"0123456789abcdef0123456789abcdef\"\nfrom = \"+15550100000\"\n\
                callback_url = \"https://hunter2@dispatch.example.com\"\n\
                [partners.bbd]\nurl = \"https://hunter2@p.example.com\"\n\
                [channels.app]\ntype = \"webhook\"\nurl = \"https://hunter2:hunter3@a.example.com\"\n";
    std::fs::write(dir.path().join("config.toml"), text).unwrap();
    for args in [&["config", "show"][..], &["config", "show", "--json"]] {
        let shown = run_binary(dir.path(), args, &[]);
        assert_eq!(shown.code, Some(0), "{shown:?}");
        assert!(shown.stdout.contains("voice.example.com"), "{shown:?}");
        for secret in ["hunter2", "hunter3", "0123456789abcdef"] {
            assert!(!shown.stdout.contains(secret), "{secret}: {shown:?}");
        }
    }
}
