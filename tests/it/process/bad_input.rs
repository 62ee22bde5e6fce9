//! With wrong settings the binary exits with 1 and names the fix. Wrong command-line usage exits with 2.

use std::net::TcpListener;

use servers::{PostgresServer, RedisServer};
use sqlx::Connection;

use crate::support::{Fleet, Printed, redis_command, run_binary};

/// An address without a listener.
const NOWHERE: &str = "127.0.0.1:1";

fn assert_fails(printed: &Printed, words: &[&str]) {
    assert_eq!(printed.code, Some(1), "{printed:?}");
    assert_eq!(printed.stdout, "");
    for word in words {
        assert!(printed.stderr.contains(word), "no '{word}' in: {}", printed.stderr);
    }
    assert!(!printed.stderr.contains("panicked"), "{}", printed.stderr);
}

#[test]
fn wrong_usage_ends_with_2_and_shows_the_usage() {
    let dir = tempfile::tempdir().unwrap();
    for args in [
        &["nonsense"][..],
        &[],
        &["work", "--concurrency", "0"],
        &["order", "show", "no order id"],
        &["order", "create", "--service-type", "RIDE"],
        &["apikey", "create", "x", "--role", "king"],
        &["job", "list", "dispatch-queue", "--limit", "0"],
        &["health", "--url", "127.0.0.1:9090"],
    ] {
        let printed = run_binary(dir.path(), args, &[]);
        assert_eq!(printed.code, Some(2), "{args:?}: {printed:?}");
        assert!(printed.stderr.contains("--help") || printed.stderr.contains("Usage"), "{args:?}: {}", printed.stderr);
    }
}

#[test]
fn a_configuration_that_is_not_valid_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("mine.toml");
    let args = ["--config", file.to_str().unwrap(), "config", "check"];
    assert_fails(&run_binary(dir.path(), &args, &[]), &["cannot read", "mine.toml"]);
    for (text, words) in [
        ("[dispatch]\natempt = \"1s\"", &["atempt", "mine.toml"][..]),
        ("[dispatch]\nattempt = \"soon\"", &["soon"]),
        ("[dispatch", &["mine.toml"]),
        ("[worker.concurrency]\nmail-queue = 1", &["mail-queue", "dispatch-queue"]),
        ("[notifications]\nsupport = [\"pager\"]", &["pager", "[channels.pager]"]),
    ] {
        std::fs::write(&file, text).unwrap();
        assert_fails(&run_binary(dir.path(), &args, &[]), words);
    }
    std::fs::write(&file, "[dispatch]\nattempt = \"1s\"").unwrap();
    assert_eq!(run_binary(dir.path(), &args, &[]).code, Some(0));
    let unknown = [("DISPATCHQ_DISPATCH__ATEMPT", "1s")];
    assert_fails(&run_binary(dir.path(), &args, &unknown), &["atempt", "environment"]);
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let database = ("DISPATCHQ_DATABASE__URL", format!("postgres://dispatchq:hunter2@{NOWHERE}/dispatchq"));
    let printed = run_binary(dir.path(), &["migrate"], &[(database.0, &database.1)]);
    assert_fails(&printed, &["cannot reach Postgres", NOWHERE, "DISPATCHQ_DATABASE__URL"]);
    assert!(!printed.stderr.contains("hunter2"), "{}", printed.stderr);

    let (redis, postgres) = (RedisServer::start().await.unwrap(), PostgresServer::start().await.unwrap());
    let (database, nowhere) = (postgres.url(), format!("redis://:hunter2@{NOWHERE}"));
    let without_redis = [("DISPATCHQ_DATABASE__URL", database.as_str()), ("DISPATCHQ_REDIS__URL", &nowhere)];
    assert_eq!(run_binary(dir.path(), &["migrate"], &without_redis).code, Some(0));
    let printed = run_binary(dir.path(), &["work"], &without_redis);
    assert_fails(&printed, &["cannot reach Redis", NOWHERE, "redis.url"]);
    assert!(!printed.stderr.contains("hunter2"), "{}", printed.stderr);

    // `serve` starts while Redis is down, but not with a login that Redis refuses.
    redis_command::<()>(&redis.url(), &["CONFIG", "SET", "requirepass", "another"]).await;
    let refused = format!("redis://:hunter2@127.0.0.1:{}", redis.port());
    let settings = [("DISPATCHQ_DATABASE__URL", database.as_str()), ("DISPATCHQ_REDIS__URL", &refused)];
    for command in ["work", "serve"] {
        let printed = run_binary(dir.path(), &[command], &settings);
        assert_fails(&printed, &["refuses the login", "redis.url"]);
        assert!(!printed.stderr.contains("hunter2"), "{}", printed.stderr);
    }
}

#[tokio::test]
async fn unknown_schema_is_refused_with_its_cure() {
    let dir = tempfile::tempdir().unwrap();
    let (redis, postgres) = (RedisServer::start().await.unwrap(), PostgresServer::start().await.unwrap());
    let (redis_url, url) = (redis.url(), postgres.url());
    let settings = [("DISPATCHQ_DATABASE__URL", url.as_str()), ("DISPATCHQ_REDIS__URL", &redis_url)];
    assert_fails(&run_binary(dir.path(), &["work"], &settings), &["run: dispatchq migrate"]);
    assert_fails(&run_binary(dir.path(), &["order", "list"], &settings), &["run: dispatchq migrate"]);
    assert_eq!(run_binary(dir.path(), &["migrate"], &settings).code, Some(0));

    let mut newer = sqlx::PgConnection::connect(&url).await.unwrap();
    let insert = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
                  VALUES (99990101, 'add to the future', true, '', 0)";
    sqlx::query(insert).execute(&mut newer).await.unwrap();
    for command in [["migrate"].as_slice(), &["order", "list"]] {
        let printed = run_binary(dir.path(), command, &settings);
        assert_eq!(printed.code, Some(0), "a newer version has only added: {printed:?}");
    }
    let contract = "UPDATE _sqlx_migrations SET description = 'contract 99990100 the past' WHERE version = 99990101";
    sqlx::query(contract).execute(&mut newer).await.unwrap();
    for command in ["migrate", "work"] {
        assert_fails(&run_binary(dir.path(), &[command], &settings), &["newer dispatchq", "99990101", "upgrade"]);
    }
}

#[tokio::test]
async fn what_does_not_exist_is_named() {
    let fleet = Fleet::start().await;
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    assert_fails(&fleet.run(&["serve", "--bind", &address]), &["cannot listen", &address, "http.bind"]);
    assert_fails(&fleet.run(&["work", "--queues", "mail-queue"]), &["mail-queue", "notify-queue"]);
    assert_fails(&fleet.run(&["job", "list", "mail-queue"]), &["mail-queue", "notify-queue"]);
    assert_fails(&fleet.run(&["job", "show", "timeout:ORD-404:1"]), &["timeout:ORD-404:1", "dispatchq job list"]);
    assert_fails(&fleet.run(&["order", "show", "ORD-404"]), &["ORD-404", "dispatchq order list"]);
    assert_fails(&fleet.run(&["order", "timeline", "ORD-404"]), &["ORD-404", "dispatchq order list"]);
    assert_fails(&fleet.run(&["order", "cancel", "ORD-404"]), &["ORD-404"]);
    let create = ["order", "create", "--service-type", "TELEPORT", "--lat", "0", "--lng", "0"];
    assert_fails(&fleet.run(&create), &["TELEPORT", "RIDE"]);
    assert_fails(&fleet.run(&["driver", "import", "nowhere.jsonl"]), &["nowhere.jsonl"]);
    std::fs::write(fleet.dir().join("bad.jsonl"), "{\"id\": \"D 1\"}\nnot json\n").unwrap();
    assert_fails(&fleet.run(&["driver", "import", "bad.jsonl"]), &["line 1", "line 2", "nothing was imported"]);
}
