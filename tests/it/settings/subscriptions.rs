//! Producer subscriptions use safe addresses and signatures, and show no secret.

use crate::support::run_binary;
use model::{messages::ProducerEvent, order::OrderStep};
use settings::{Config, ProducerConfig};

const SECRET: &str = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3";

#[test]
fn a_subscription_that_could_leak_or_be_forged_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let check = |url: &str, more: &str| {
        let text = format!("[producers.shop]\nurl = \"{url}\"\nevents = [\"order.created\"]\n{more}\n");
        std::fs::write(dir.path().join("config.toml"), text).unwrap();
        run_binary(dir.path(), &["config", "check"], &[])
    };
    let signed = format!("secret = \"{SECRET}\"");
    let private = format!("{signed}\nallow_private = true");
    for (url, more, said) in [
        ("http://shop.example.com/", &signed, "must be https"),
        ("http://10.0.0.5/", &private, "must be https"),
        ("https://10.0.0.5/", &signed, "allow_private"),
        ("https://[fd00::1]/", &signed, "allow_private"),
        ("https://169.254.169.254/", &signed, "allow_private"),
        ("http://localhost:8080/", &signed, "allow_private"),
        ("https://shop.example.com/", &String::new(), "secret is missing"),
    ] {
        let refused = check(url, more);
        assert_eq!(refused.code, Some(1), "{url}: {refused:?}");
        assert!(refused.stderr.contains("producers.shop") && refused.stderr.contains(said), "{url}: {refused:?}");
    }
    for (url, more) in
        [("https://shop.example.com/", &signed), ("https://10.0.0.5/", &private), ("http://127.0.0.1:8080/", &private)]
    {
        assert_eq!(check(url, more).code, Some(0), "{url}");
    }
    let mut config = Config::defaults();
    let subscription = ProducerConfig {
        url: Some("https://shop.example.com/HIDDEN-PATH".to_owned()),
        secret: Some(SECRET.to_owned()),
        events: OrderStep::ALL.iter().copied().map(ProducerEvent::Step).collect(),
        ..ProducerConfig::default()
    };
    config.producers.insert("shop".to_owned(), subscription);
    let shown = format!("{} {:?}", serde_json::to_string(&config.without_secrets()).unwrap(), config.producers);
    assert!(!shown.contains(SECRET) && !shown.contains("HIDDEN-PATH"), "{shown}");
}
