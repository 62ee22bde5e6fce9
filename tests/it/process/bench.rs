//! The soak, small: producer, worker process and report work together. Speed is not judged here.

use serde_json::Value;

use crate::support::run_binary;

#[test]
fn a_small_soak_loses_nothing_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["bench", "soak", "--minutes", "0.05", "--rate", "200", "--spread", "2", "--json"];
    let printed = run_binary(dir.path(), &args, &[]);
    assert_eq!(printed.code, Some(0), "{printed:?}");
    let soak: Value = serde_json::from_str(&printed.stdout).unwrap();
    assert_eq!((soak["enqueued"].as_u64(), soak["done"].as_u64()), (Some(600), Some(600)), "{soak}");
    for fault in ["lost", "early", "doubled"] {
        assert_eq!(soak[fault], 0, "{soak}");
    }
    assert!(soak["lateness_ms"]["max"].as_f64() >= soak["lateness_ms"]["p50"].as_f64(), "{soak}");
    for memory in ["worker_rss_bytes", "redis_rss_bytes"] {
        for moment in ["first", "last", "max"] {
            assert!(soak[memory][moment].as_u64() > Some(1 << 20), "{memory} {moment}: {soak}");
        }
    }
    assert!(printed.stderr.starts_with("minute  lateness"), "{printed:?}");
    assert_eq!(run_binary(dir.path(), &["bench", "soak", "--minutes", "0"], &[]).code, Some(2));
}
