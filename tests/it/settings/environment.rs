//! Only variables with two underscores are settings.

use crate::support::run_binary;

/// Variables that Kubernetes sets for a Service named `dispatchq`.
const SERVICE: [(&str, &str); 4] = [
    ("DISPATCHQ_PORT", "tcp://10.0.0.1:8080"),
    ("DISPATCHQ_SERVICE_HOST", "10.0.0.1"),
    ("DISPATCHQ_SERVICE_PORT", "8080"),
    ("DISPATCHQ_PORT_8080_TCP_ADDR", "10.0.0.1"),
];

// Fault S3
// Rule F31: `config check` names every variable that is ignored.
#[test]
fn a_kubernetes_service_of_our_name_stops_no_process() {
    let dir = tempfile::tempdir().unwrap();
    let checked = run_binary(dir.path(), &["config", "check"], &SERVICE);
    assert_eq!((checked.code, checked.stderr.as_str()), (Some(0), ""), "{checked:?}");

    for (name, _) in SERVICE {
        assert!(checked.stdout.contains(&format!("{name} is ignored")), "{checked:?}");
    }
    let misspelt = run_binary(dir.path(), &["config", "check"], &[("DISPATCHQ_REDIS_URL", "redis://hunter2")]);
    assert!(misspelt.stdout.contains("DISPATCHQ_REDIS_URL is ignored: write DISPATCHQ_REDIS__URL"), "{misspelt:?}");
    assert!(misspelt.code == Some(0) && !misspelt.stdout.contains("hunter2"), "{misspelt:?}");

    // Without servers the process exits, but the variables are not the cause.
    let nowhere = ("DISPATCHQ_DATABASE__URL", "postgres://127.0.0.1:1/dispatchq");
    let settings: Vec<_> = SERVICE.into_iter().chain([nowhere, ("DISPATCHQ_REDIS_URL", "redis://hunter2")]).collect();
    let ended = run_binary(dir.path(), &["work"], &settings);
    assert!(ended.stderr.contains("cannot reach Postgres"), "{ended:?}");
    for (name, _) in SERVICE.iter().chain(&[("DISPATCHQ_REDIS_URL", "")]) {
        assert!(ended.stderr.contains(name), "{name}: {ended:?}");
    }
    assert!(ended.stderr.contains("two underscores") && !ended.stderr.contains("hunter2"), "{ended:?}");
}

// Fault S3
#[test]
fn a_setting_that_does_not_exist_is_still_refused() {
    let dir = tempfile::tempdir().unwrap();
    let refused = run_binary(dir.path(), &["config", "check"], &[("DISPATCHQ_REDIS__ULR", "redis://hunter2")]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("ulr") && !refused.stderr.contains("hunter2"), "{refused:?}");
}
