//! Commands with a key over HTTP. Their directory has no configuration, so they can reach only the API.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Child, Fleet, Printed, eventually, run_binary};

/// Zones shipped in the repository.
const JAKARTA: &str = include_str!("../../../deploy/areas/jakarta.geojson");

/// A directory with a person's key files, and the API that accepts the keys.
pub(super) struct Desk {
    _api: Child,
    pub(super) fleet: Fleet,
    url: String,
    dir: TempDir,
}

impl Desk {
    /// Creates a key file for each role, named after the role.
    pub(super) async fn open(roles: &[&str]) -> Self {
        Self::of(Fleet::start().await, roles).await
    }

    /// Like [`open`](Self::open), for an existing fleet.
    pub(super) async fn of(fleet: Fleet, roles: &[&str]) -> Self {
        fleet.run(&["reconcile", "run"]);
        let (api, url) = fleet.api().await;
        let desk = Self { _api: api, fleet, url, dir: tempfile::tempdir().unwrap() };
        for role in roles {
            let made = desk.fleet.run(&["apikey", "create", role, "--role", role]);
            assert_eq!(made.code, Some(0), "{made:?}");
            desk.write_key(role, &made.stdout, 0o600);
        }
        desk
    }

    fn write_key(&self, file: &str, key: &str, mode: u32) {
        let path = self.dir.path().join(file);
        fs::write(&path, key).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    }

    /// Writes an input file for commands of both ways.
    pub(super) fn write_input(&self, name: &str, text: impl AsRef<[u8]>) {
        for dir in [self.dir.path(), self.fleet.dir()] {
            fs::write(dir.join(name), &text).unwrap();
        }
    }

    pub(super) fn run(&self, key_file: &str, args: &[&str]) -> Printed {
        let args = [&["--api", &self.url, "--key-file", key_file], args].concat();
        run_binary(self.dir.path(), &args, &[])
    }

    /// Runs a command that must succeed and returns its JSON output.
    #[track_caller]
    pub(super) fn json(&self, key_file: &str, args: &[&str]) -> Value {
        let printed = self.run(key_file, args);
        assert_eq!((printed.code, printed.stderr.as_str()), (Some(0), ""), "{args:?}: {printed:?}");
        serde_json::from_str(&printed.stdout).unwrap()
    }

    /// Compares the area that the database and the API show, with the range of its threshold.
    async fn compare_shown_area(&self) {
        fs::write(self.fleet.dir().join("areas.geojson"), JAKARTA).unwrap();
        let imported = self.fleet.run(&["area", "import", "areas.geojson"]);
        assert_eq!(imported.code, Some(0), "{imported:?}");
        let set = ["area", "set", "CGK", "--service-type", "RIDE", "--schedule", "MON-SUN 00:00-24:00=5"];
        let set = self.fleet.run(&set);
        assert_eq!(set.code, Some(0), "{set:?}");
        self.compare_unchanged_area();
        let show = ["area", "show", "CGK"];
        let local = self.fleet.run(&show).stdout;
        assert!(local.starts_with("CGK Bandara Soekarno-Hatta, priority 10, service types all\n"), "{local}");
        let ride = local.lines().find(|line| line.contains("RIDE")).unwrap_or_default();
        assert!(ride.contains("5 (schedule)") && ride.contains("AUTO, threshold OFF"), "{local}");
        assert!(local.contains("RIDE by schedule: "), "{local}");
        eventually("the API shows the area as the rows", || async { self.run("viewer", &show).stdout == local }).await;
    }

    /// Sets limits to their current values both ways and asserts that nothing changes. Removes an area with a reason,
    /// after confirmation.
    fn compare_unchanged_area(&self) {
        let set = ["area", "set", "CGK", "--service-type", "RIDE"];
        let schedule = [&set[..], &["--schedule", "MON-SUN 00:00-24:00=5"]].concat();
        for args in [&set[..], &schedule] {
            for printed in [self.fleet.run(args), self.run("operator", args)] {
                assert_eq!(
                    printed.stdout, "Nothing has changed: CGK RIDE still has version 1.\n",
                    "{args:?}: {printed:?}"
                );
            }
        }
        let changes = self.fleet.run(&["area", "changes", "--area", "CGK", "--json"]).stdout;
        assert_eq!(changes.matches("limits set").count(), 1, "{changes}");
        let remove = ["area", "remove", "JKT-UTARA"];
        assert_eq!(self.fleet.run(&remove).code, Some(2), "without a reason");
        let remove = [&remove[..], &["--reason", "merged with JKT-PUSAT"]].concat();
        let refused = self.fleet.run(&remove);
        assert!(refused.code == Some(1) && refused.stderr.contains("no terminal for the confirmation"), "{refused:?}");
        let removed = self.fleet.run(&[&remove[..], &["--yes"]].concat());
        assert_eq!(removed.stdout, "JKT-UTARA is removed.\n", "{removed:?}");
        let changes = self.fleet.run(&["area", "changes", "--area", "JKT-UTARA"]).stdout;
        assert!(changes.contains("merged with JKT-PUSAT"), "{changes}");
    }

    /// Asserts that a command fails with these words.
    #[track_caller]
    fn refused(&self, key_file: &str, args: &[&str], words: &str) {
        let printed = self.run(key_file, args);
        assert_eq!((printed.code, printed.stdout.as_str()), (Some(1), ""), "{args:?}: {printed:?}");
        assert!(printed.stderr.contains(words), "{args:?}: {printed:?}");
    }
}

// Rule F21: `area set` without a change writes nothing and reports that, both with the database and over the API.
// Rule F40: `area remove` asks for confirmation, or needs --yes without a terminal. It records a reason.
#[tokio::test]
async fn staff_commands_need_only_a_key() {
    let desk = Desk::open(&["producer", "dispatcher", "operator", "viewer"]).await;
    let create =
        ["order", "create", "--id", "ORD-1", "--service-type", "RIDE", "--lat", "-6.2", "--lng", "106.8", "--json"];
    assert_eq!(desk.json("producer", &create)["status"], "DISPATCHING");

    let shown = desk.json("viewer", &["order", "show", "ORD-1", "--json"]);
    assert_eq!((&shown["order_id"], &shown["status"]), (&json!("ORD-1"), &json!("DISPATCHING")));
    let local = desk.fleet.run(&["order", "show", "ORD-1", "--json"]);
    let local: Value = serde_json::from_str(&local.stdout).unwrap();
    let members = |order: &Value| order.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(members(&shown), members(&local), "both print the same members");
    assert_eq!(desk.json("viewer", &["order", "list", "--open", "--json"])[0]["order_id"], "ORD-1");
    let timeline = desk.json("viewer", &["order", "timeline", "ORD-1", "--json"]);
    assert_eq!(timeline[0]["reason"], "ORDER_CREATED");
    let explained = desk.run("viewer", &["order", "explain", "ORD-1"]);
    assert!(explained.stdout.contains("ORD-1 is DISPATCHING.") && explained.stdout.contains("dispatch:ORD-1:1"));
    assert!(desk.run("viewer", &["order", "show", "ORD-1"]).stdout.starts_with("order          ORD-1\n"));

    // The history names the key, not the operating-system user.
    let held = desk.run("dispatcher", &["order", "hold", "ORD-1", "--reason", "the customer calls back"]);
    assert!(held.code == Some(0) && held.stdout.starts_with("ORD-1 is "), "{held:?}");
    let timeline = desk.json("viewer", &["order", "timeline", "ORD-1", "--json"]);
    assert_eq!(timeline.as_array().unwrap().last().unwrap()["actor"], "dispatcher:dispatcher");

    let taken = desk.run("dispatcher", &["order", "take", "ORD-1", "--reason", "I call the customer"]);
    assert!(
        taken.code == Some(0) && taken.stdout.starts_with("dispatcher:dispatcher handles ORD-1 until "),
        "{taken:?}"
    );
    let left = desk.run("dispatcher", &["order", "leave", "ORD-1"]);
    assert_eq!((left.code, left.stdout.as_str()), (Some(0), "You no longer handle ORD-1.\n"), "{left:?}");
    desk.refused("dispatcher", &["order", "leave", "ORD-1"], "(409 NOT_ON_ORDER)");
    let local = desk.fleet.run(&["order", "take", "ORD-1"]);
    assert!(local.code == Some(0) && local.stdout.contains(" handles ORD-1 until "), "{local:?}");

    let paused = desk.run("operator", &["queue", "pause", "notify-queue", "--reason", "maintenance"]);
    let words = "notify-queue is paused now. Resume it: dispatchq queue resume notify-queue\n";
    assert_eq!((paused.code, paused.stdout.as_str()), (Some(0), words), "{paused:?}");
    assert!(desk.json("operator", &["queue", "stats", "--json"])["lateness"]["count"].is_u64());
    assert!(desk.run("operator", &["queue", "stats"]).stdout.contains("paused"));
    assert_eq!(desk.json("operator", &["dead", "list", "--json"]), json!({ "jobs": [], "next": null }));
    let dead = ["dead", "requeue", "dispatch:ORD-9:1", "--reason", "x", "--json"];
    let dead = desk.run("operator", &dead);
    assert!(dead.code == Some(1) && dead.stdout.contains("dispatch:ORD-9:1"), "{dead:?}");
    assert_eq!(desk.json("viewer", &["alert", "list", "--json"]), json!([]));

    assert_eq!(desk.json("viewer", &["driver", "list", "--json"]), json!([]));
    assert_eq!(desk.json("operator", &["outbox", "list", "--state", "dead", "--json"]), json!([]));
    assert_eq!(desk.json("viewer", &["area", "list", "--json"]), json!({ "areas": [], "limits": [], "status": [] }));
    desk.compare_shown_area().await;

    // Environment variables may name the API and the key file.
    let variables = [("DISPATCHQ_API", desk.url.as_str()), ("DISPATCHQ_KEY_FILE", "viewer")];
    let shown = run_binary(desk.dir.path(), &["order", "show", "ORD-1"], &variables);
    assert_eq!(shown.code, Some(0), "{shown:?}");
}

#[tokio::test]
async fn a_command_over_http_says_why_it_is_refused() {
    let desk = Desk::open(&["viewer"]).await;
    desk.refused("viewer", &["order", "cancel", "ORD-1"], "(403 FORBIDDEN)");
    desk.refused("viewer", &["order", "show", "ORD-9"], "(404 ORDER_NOT_FOUND)");
    desk.refused("viewer", &["order", "release", "ORD-1"], "--reason is required");
    // A missing reason is reported before the command looks up or asks anything.
    for command in [
        &["dead", "requeue", "--all"][..],
        &["dead", "discard", "--all"],
        &["outbox", "replay", "--all"],
        &["alert", "ack", "--order", "ORD-9"],
        &["apikey", "revoke", "01937c3e-8f00-7000-8000-000000000001"],
        &["apikey", "revoke", "--name", "nobody"],
    ] {
        desk.refused("viewer", command, "--reason is required");
    }
    let ack = desk.fleet.run(&["alert", "ack", "--order", "ORD-9"]);
    assert!(ack.code == Some(1) && ack.stderr.contains("--reason is required"), "{ack:?}");
    desk.refused("viewer", &["check", "history"], "(403 FORBIDDEN)");
    desk.write_key("wrong", "dq_0000", 0o600);
    desk.refused("wrong", &["order", "show", "ORD-1"], "does not know the key");
    desk.write_key("open", "dq_0000", 0o640);
    desk.refused("open", &["order", "show", "ORD-1"], "chmod 600 open");
    desk.write_key("empty", "\n", 0o600);
    desk.refused("empty", &["order", "show", "ORD-1"], "contains no key");
    desk.refused("absent", &["order", "show", "ORD-1"], "cannot read the key in absent");

    let elsewhere = |args: &[&str]| run_binary(desk.dir.path(), &[&["order", "show", "ORD-1"], args].concat(), &[]);
    let silent = elsewhere(&["--api", "http://127.0.0.1:1", "--key-file", "viewer"]);
    assert!(silent.code == Some(1) && silent.stderr.contains("does not answer"), "{silent:?}");
    let unencrypted = elsewhere(&["--api", "http://dispatch.example", "--key-file", "viewer"]);
    assert!(unencrypted.code == Some(1) && unencrypted.stderr.contains("--insecure-http"), "{unencrypted:?}");
    let keyless = elsewhere(&["--api", &desk.url]);
    assert!(keyless.code == Some(1) && keyless.stderr.contains("--key-file FILE"), "{keyless:?}");
}
