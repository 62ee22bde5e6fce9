//! A recording of the binary's behaviour, so that no refactoring changes it unnoticed: the API document, the help, and
//! one run of 500 orders and 50 bindings under a clock that the test moves.
//!
//! These tests use only the binary: its command line, HTTP, webhooks and the `audit_` views. They use none of the
//! project's crates. `recordings/` contains the results; README.md explains how to replay and record.

mod bindings;
mod cast;
mod commands;
mod document;
mod help;
mod lives;
mod placeholders;
mod recording;
mod requests;
mod stories;
mod stubs;
mod world;

use cast::Cast;
use recording::Recording;
use world::World;

const CONFIG: &str = include_str!("config.toml");

#[test]
fn help_of_all_commands_is_as_recorded() {
    let mut recording = Recording::default();
    let (text, commands) = help::all();
    commands::check_complete(&commands);
    recording.add("help.txt", text);
    recording.check();
}

#[tokio::test]
async fn api_document_means_what_is_recorded() {
    let world = World::start(CONFIG).await;
    let answer = world.ask("", reqwest::Method::GET, "/openapi.json", None).await;
    let document = document::sorted(&answer.body.to_string());
    recording::check_compressed("openapi.json.gz", &document, document::meaning);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_of_orders_and_bindings_is_as_recorded() {
    let cast = Cast::new(World::start(CONFIG).await);
    for (name, role) in [
        ("shop", "producer"),
        ("dispatcher", "dispatcher"),
        ("support", "support"),
        ("operator", "operator"),
        ("viewer", "viewer"),
    ] {
        cast.employ(name, role, None).await;
    }
    lives::hire(&cast).await;
    lives::play(&cast).await;
    bindings::play(&cast).await;

    let mut recording = Recording::default();
    recording.add("orders.txt", stories::of_orders(&cast.world).await);
    recording.add("bindings.txt", stories::of_bindings(&cast.world).await);
    recording.add("metrics.txt", stories::of_metrics(&cast.world.scrape().await));
    recording.add("answers.txt", cast.answers());
    recording.add("requests.txt", requests::send(&cast).await);
    commands::show(&cast.world, &mut recording).await;
    recording.add("views.txt", stories::of_views(&cast.world).await);
    recording.check();
}
