//! Runs every command in this process and over HTTP and expects the same output and exit code. In the table, `%` is 1
//! for this process and 2 for HTTP, so that each way changes its own data.

use regex_lite::Regex;

use super::remote::Desk;
use crate::support::{Fleet, Printed, millis};

const SETTINGS: &str = "[service_types.RIDE]\nattempt = \"60s\"\n\
    [providers.acme]\napi_key = \"key\"\nhosts = [\"127.0.0.1\"]\nallow_private = true\n\
    [bindings]\notp_key = \"AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\"\n";
const DRIVERS: &str = "{\"id\": \"D-%\", \"service_types\": [\"RIDE\"], \"latitude\": -6.2, \"longitude\": 106.8, \"available\": false}\n";
const USERS: &str = "{\"id\": \"anna-%\", \"name\": \"Anna\", \"role\": \"dispatcher\"}\n";
const AREAS: &str = r#"{"type": "FeatureCollection", "features": [{"type": "Feature", "colour": 1,
    "properties": {"area_id": "A-%", "name": "Town", "colour": 1}, "geometry": {"type": "Polygon",
    "coordinates": [[[%0, 1], [%5, 1], [%5, 5], [%0, 5], [%0, 1]]]}}]}"#;

/// Commands in the order in which they run. `_` is a space within an argument.
const COMMANDS: [&str; 151] = [
    "driver import drivers-%.jsonl --reason a_test",
    "driver import wrong.jsonl",
    "driver set D-% --skills wheelchair,van --name Ana --reason a_test",
    "driver set D-% --reason a_test",
    "driver list",
    "driver list --json",
    "driver sign-in D-% --reason a_test",
    "driver disable D-% --reason a_test",
    "driver enable D-% --reason a_test",
    "driver disable D-9 --reason a_test",
    "driver offers D-%",
    "driver offers D-% --json",
    "driver accept D-%",
    "driver complete D-%",
    "user import users-%.jsonl --reason a_test",
    "user list",
    "user list --json",
    "user disable anna-% --reason a_test",
    "user enable anna-% --reason a_test",
    "user enable nobody --reason a_test",
    "user remove anna-% --reason a_test",
    "user remove anna-% --reason a_test --yes",
    "apikey create key-% --role viewer --reason a_test",
    "apikey create key-% --role viewer --reason a_test",
    "apikey create json-% --role producer --reason a_test --json",
    "apikey create drive-% --role viewer --driver D-% --reason a_test",
    "apikey create limited-% --role viewer --service-type RIDE --reason a_test",
    "apikey scope 01937c3e-8f00-7000-8000-000000000001 --service-type RIDE --reason a_test",
    "apikey rotate --name key-% --reason a_test",
    "apikey rotate --name nobody --reason a_test",
    "apikey list --name key-",
    "apikey list --name json- --json",
    "apikey list --role producer --unused-for 1h",
    "apikey revoke --name key-% --reason a_test --dry-run",
    "apikey revoke --name key-% --reason a_test --yes",
    "apikey revoke --name key-% --reason a_test --yes --json",
    "order create --id RIDE-% --service-type RIDE --lat -6.2 --lng 106.8",
    "order create --id RIDE-% --service-type RIDE --lat -6.2 --lng 106.8",
    "order create --id JSON-% --service-type RIDE --lat -6.2 --lng 106.8 --requires van --requires lift --json",
    "order create --id BAD-% --service-type RIDE --lat -6.2 --lng 106.8 --requires Van",
    "order create --id NOPE-% --service-type NOPE --lat -6.2 --lng 106.8",
    "order show RIDE-%",
    "order show RIDE-% --json",
    "order explain RIDE-%",
    "order explain RIDE-% --json",
    "order show RIDE-9",
    "order update RIDE-% --notes a_test --address Gate_1 --metadata site=RIDE-% --if-version 0",
    "order update RIDE-% --notes another --if-version 0",
    "order update RIDE-% --remove notes --remove metadata.other --json",
    "order list",
    "order list --metadata site=RIDE-%",
    "order list --open --limit 1 --json",
    "order hold RIDE-% --reason a_test",
    "order show RIDE-%",
    "order list --held",
    "order take RIDE-% --reason a_test",
    "order leave RIDE-%",
    "order leave RIDE-%",
    "order resume RIDE-% --reason a_test",
    "order assign RIDE-% --driver D-% --reason a_test",
    "driver remove D-% --reason a_test --yes",
    "order release RIDE-% --reason a_test",
    "order redispatch RIDE-% --reason a_test",
    "order timeline RIDE-%",
    "order timeline RIDE-% --json",
    "job list lifetime-cancel-queue --json",
    "job show lifetime:RIDE-%",
    "job show lifetime:RIDE-% --json",
    "job show lifetime:RIDE-9",
    "job cancel lifetime:RIDE-% --reason a_test",
    "job cancel lifetime:RIDE-% --reason a_test --json",
    "job reschedule lifetime:RIDE-% --in 2h --reason a_test",
    "job run-now lifetime:RIDE-% --reason a_test",
    "order cancel RIDE-% --reason a_test",
    "order cancel RIDE-%",
    "order refund start RIDE-% --note a_test",
    "order refund done RIDE-%",
    "area import areas-%.geojson --check",
    "area import areas-%.geojson --reason a_test",
    "area import wrong.jsonl",
    "area set A-% --service-type RIDE --max-waiting-orders 5 --reason a_test",
    "area set A-% --service-type RIDE --max-waiting-orders 5",
    "area set A-% --service-type RIDE --max-waiting-orders 6 --if-version 7",
    "area override A-% force-busy --for 2h --reason a_test",
    "area override A-% auto",
    "area flag",
    "area flag --shadow true --areas A-1,A-2 --reason a_test",
    "area flag --areas all --shadow false --reason a_test --json",
    "area list",
    "area list --json",
    "area show A-%",
    "area show A-% --json",
    "area show A-9",
    "area export",
    "area report --area A-% --threshold 3",
    "area report --json",
    "area advise A-% --service-type RIDE",
    "area changes --area A-%",
    "area changes --limit 1 --json",
    "area remove A-% --reason a_test --yes",
    "alert list",
    "alert list --open --json",
    "alert ack 999 --reason a_test",
    "alert ack --order RIDE-% --reason a_test --yes",
    "outbox list",
    "outbox list --binding B-% --json",
    "outbox show 999",
    "outbox replay 999 --reason a_test",
    "dead list",
    "dead list --json",
    "dead show dispatch:RIDE-%:1",
    "dead requeue dispatch:RIDE-%:1 --reason a_test",
    "dead requeue dispatch:RIDE-%:1 --dry-run --json",
    "dead discard --all --reason a_test --yes",
    "partner list",
    "partner set bbd --polling-percent 50 --reason a_test",
    "server set S% --provider acme --url http://127.0.0.1:1/S --reason a_test",
    "server set S% --max-concurrent 4 --reason a_test --json",
    "server set S9 --max-concurrent 4 --reason a_test",
    "server list",
    "server list --json",
    "server limit 60 --reason a_test",
    "server limit --json",
    "webhook create https://shop.example.com/% --producer shop-% --events order.created --reason a_test",
    "webhook create https://shop.example.com/% --producer shop-% --reason a_test --json",
    "webhook create http://169.254.169.254/x --producer shop-% --reason a_test",
    "webhook list --producer shop-%",
    "webhook list --json",
    "webhook pause 01937c3e-8f00-7000-8000-000000000001 --reason a_test",
    "webhook rotate nonsense --reason a_test",
    "webhook replay 01937c3e-8f00-7000-8000-000000000001 --after x --reason a_test",
    "webhook delete 01937c3e-8f00-7000-8000-000000000001 --reason a_test --yes",
    "binding create B-% --server S% --account ACC",
    "binding create B-% --server S% --account ACC --json",
    "binding create B-9 --server S9 --account ACC",
    "binding list",
    "binding show B-% --json",
    "binding start B-% --dry-run",
    "binding start B-%",
    "binding start B-% --json",
    "binding explain B-%",
    "binding pause --server S% --reason a_test --dry-run",
    "plan list",
    "binding pause --server S% --reason a_test --yes --json",
    "plan show 01937c3e-8f00-7000-8000-000000000001",
    "binding resume B-%",
    "binding stop --server S% --yes",
    "binding transactions B-%",
    "binding otp B-% --trx B-%.1",
    "binding delete B-%",
    "binding show B-%",
];

/// Commands for the installation.
const UPKEEP: [&str; 23] = [
    "queue list",
    "queue stats --json",
    "queue resume notify-queue --reason a_test",
    "queue pause no-queue --reason a_test",
    "worker list",
    "worker list --json",
    "worker drain 0000000000000000 --reason a_test",
    "worker resume 0000000000000000 --reason a_test",
    "shards list",
    "shards list --json",
    "shards set 1 --reason a_test",
    "shards drain",
    "reconcile run --dry-run",
    "reconcile run --dry-run --json",
    "reconcile run --json",
    "cleanup run --dry-run",
    "cleanup run --json",
    "check history",
    "check history --json --max-calls 9",
    "privacy erase --order RIDE-9 --reason a_test --dry-run",
    "privacy erase --order RIDE-% --reason a_test --dry-run",
    "privacy list",
    "privacy replay erasures.json --yes",
];

/// Tries per command. Another process sees a change within a second.
const TRIES: u32 = 15;

/// Replaces values that always differ: times, ids, keys, and the person who runs the command.
fn without_differences(text: &str, own: Option<char>) -> String {
    let mut text = text.to_owned();
    for (pattern, stands_for) in [
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
        (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID"),
        (r"dq_[0-9a-f]{64}", "KEY"),
        (r"whsec_[A-Za-z0-9+/=]+", "SECRET"),
        (r"(cli:\w+|admin:admin)", "PERSON"),
        (r#""\w+_ms": \d+"#, "MS"),
        (r"in \d+ s", "in N s"),
        (r#""(in_sec|seq|id|version|revision|lifetime_left_sec|longitude)": [\d.]+"#, "NUMBER"),
        (r"notify:(\S+):\d+", "notify:$1:N"),
        (r"(override|version) \d+", "$1 N"),
        (r"\d+ ms", "MS"),
        (r" +", " "),
    ] {
        text = Regex::new(pattern).unwrap().replace_all(&text, stands_for).into_owned();
    }
    let Some(way) = own else { return text };
    let own = Regex::new(&format!(r"(RIDE-|JSON-|NOPE-|D-|anna-|key-|json-|drive-|A-|B-|S|shop-|example.com/){way}"))
        .unwrap();
    own.replace_all(&text, "${1}N").into_owned()
}

fn run(desk: &Desk, command: &str, way: char) -> Printed {
    let args: Vec<_> = command.split(' ').map(|word| word.replace('%', &way.to_string()).replace('_', " ")).collect();
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    if way == '1' { desk.fleet.run(&args) } else { desk.run("admin", &args) }
}

/// Runs a command both ways. Repeats it while another process does not see a change yet.
async fn compare(desk: &Desk, command: &str) -> Option<String> {
    let mut shown = [String::new(), String::new()];
    for attempt in 0..TRIES {
        if attempt == 0 || is_read(command) {
            let printed = ['1', '2'].map(|way| (run(desk, command, way), way));
            shown = printed.map(|(printed, way)| {
                format!(
                    "exit {:?}\n{}",
                    printed.code,
                    without_differences(&printed.stdout, command.contains('%').then_some(way))
                ) + "---"
                    + &printed.stderr
            });
        }
        let stdout = |text: &str| text.split("---").next().unwrap().to_owned();
        if stdout(&shown[0]) == stdout(&shown[1]) {
            return None;
        }
        if !is_read(command) {
            break;
        }
        tokio::time::sleep(millis(100)).await;
    }
    Some(format!("$ {command}\nIN PROCESS\n{}\nOVER HTTP\n{}\n", shown[0], shown[1]))
}

fn is_read(command: &str) -> bool {
    ["list", "show", "explain", "timeline", "changes", "report", "export", "transactions"]
        .contains(&command.split(' ').nth(1).unwrap())
}

#[tokio::test]
async fn commands_print_the_same_both_ways() {
    let desk = Desk::of(Fleet::with("1h", SETTINGS).await, &["admin"]).await;
    for way in ["1", "2"] {
        for (name, text) in [("drivers-%.jsonl", DRIVERS), ("users-%.jsonl", USERS), ("areas-%.geojson", AREAS)] {
            desk.write_input(&name.replace('%', way), text.replace('%', way));
        }
    }
    desk.write_input("wrong.jsonl", "{\"id\": \"D-1\"}\n[]\n");
    desk.write_input("erasures.json", "[]");
    let mut different = Vec::new();
    for command in COMMANDS.into_iter().chain(UPKEEP) {
        different.extend(compare(&desk, command).await);
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}
