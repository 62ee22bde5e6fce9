//! `doctor` warns about settings that work but are unwise.

use crate::support::{Fleet, redis_command};

// Fault S13
// Rule F33: `doctor --strict` reads the rows of providers' servers, and warns of each that must not be called.
#[tokio::test]
async fn doctor_warns_and_strict_exits_1() {
    let fleet = Fleet::start().await;
    let warned = |args: &[&str]| {
        let printed = fleet.run(args);
        let warnings: Vec<_> = printed.stdout.lines().filter(|l| l.starts_with("warn")).map(str::to_owned).collect();
        (printed.code, warnings.join("\n"))
    };
    let (code, warnings) = warned(&["doctor"]);
    assert_eq!(code, Some(0), "{warnings}");
    assert!(warnings.contains("notifications.support has only the log"), "{warnings}");
    assert!(!warnings.contains("redis policy") && !warnings.contains("unencrypted"), "{warnings}");
    assert_eq!(warned(&["doctor", "--strict"]), (Some(1), warnings));

    fleet.configure("\n[providers.acme]\napi_key = \"hunter2\"\n[providers.bank]\napi_key = \"hunter2\"\nhosts = [\"bank.example\"]\n");
    sqlx::query(
        "INSERT INTO provider_servers (id, provider, base_url, changed_by)
         VALUES ('S1', 'acme', 'https://s1.acme.example', 'me'), ('S2', 'bank', 'https://bank.example', 'me'),
                ('S3', 'bank', 'http://169.254.169.254/latest', 'me')",
    )
    .execute(&fleet.app.core.db)
    .await
    .unwrap();
    let (_, warnings) = warned(&["doctor", "--strict"]);
    for told in ["providers.acme: hosts is empty", "server S1 cannot be called", "server S3 cannot be called"] {
        assert!(warnings.contains(told), "{told}: {warnings}");
    }
    assert!(!warnings.contains("server S2") && !warnings.contains("hunter2"), "{warnings}");

    redis_command::<()>(&fleet.redis.url(), &["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).await;
    redis_command::<()>(&fleet.redis.url(), &["CONFIG", "SET", "appendonly", "no"]).await;
    fleet.configure(
        "\n[partners.bbd]\nurl = \"http://partner.example.com/api\"\napi_key = \"hunter2\"\n\
         [channels.app]\ntype = \"webhook\"\nurl = \"http://app.example.com/hunter2\"\n",
    );
    let (code, warnings) = warned(&["doctor"]);
    assert_eq!(code, Some(0), "{warnings}");
    for told in ["allkeys-lru", "appendonly is off", "partners.bbd", "channels.app", "unencrypted", "not signed"] {
        assert!(warnings.contains(told), "{told}: {warnings}");
    }
    assert!(!warnings.contains("hunter2"), "{warnings}");
}
