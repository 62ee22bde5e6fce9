//! Answers to the requests in requests.txt at the end of the run, including refusals.

use crate::{cast::Cast, placeholders};

const REQUESTS: &str = include_str!("requests.txt");

/// Sends all requests and returns each with its answer.
pub async fn send(cast: &Cast) -> String {
    let mut text = String::new();
    for line in REQUESTS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut words = line.splitn(4, ' ');
        let (Some(actor), Some(method), Some(path)) = (words.next(), words.next(), words.next()) else {
            panic!("requests.txt: {line}")
        };
        let body = words.next().map(|body| serde_json::from_str(body).expect("a body of JSON"));
        let key = cast.keys.lock().expect("no panic").get(actor).cloned().unwrap_or_default();
        assert_eq!(key.is_empty(), actor == "anonymous", "{actor} has a key");
        let answer = cast.world.ask(&key, method.parse().expect("a method"), path, body).await;
        let body = placeholders::in_json(&answer.body);
        text.push_str(&format!("{}\n  {} {body}\n", placeholders::in_text(line), answer.status));
    }
    text
}
