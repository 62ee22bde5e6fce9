//! The commands of README.md's first order and of docs/TUTORIAL.md work in their order in an empty folder, and print what
//! the page shows.

use std::{fs, fs::Permissions, os::unix::fs::PermissionsExt, path::Path};

use crate::support::pages::{assert_shown, read_steps, run_steps};

/// Starts `dev` and waits until it serves requests.
const START_DEV: &str = r#"
dev=
trap 'kill $dev ${RECEIVER:-} 2>/dev/null || :; wait; tail -n 40 dev.log' EXIT
start_dev() {
    dispatchq dev --bind "$BIND" >dev.log 2>&1 & dev=$!
    until curl -sf "http://$BIND/readyz" >/dev/null; do kill -0 "$dev"; sleep 0.2; done
    cat dev.log
}
"#;

fn read(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap()
}

/// Runs the commands of a page in an empty folder and checks their output. Returns the output of each step.
fn follow(page: &str) -> Vec<String> {
    // Postgres may have to run as another user, who needs access to the directory.
    let dir = tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir_in("/var/tmp").unwrap();
    let (bind, receiver) = (format!("127.0.0.1:{}", servers::free_port()), servers::free_port().to_string());
    let mut steps = read_steps(&page.replace("7070", &receiver).replace("127.0.0.1:8080", &bind));
    for step in &mut steps {
        if step.commands.split('#').next().is_some_and(|command| command.trim().ends_with("dispatchq dev")) {
            "start_dev".clone_into(&mut step.commands);
        }
    }
    let programs = Path::new(env!("CARGO_BIN_EXE_dispatchq")).parent().unwrap().display();
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap());
    // On a busy machine jobs are late, and a request without retries would be refused.
    let settings = [("PATH", path.as_str()), ("BIND", &bind), ("DISPATCHQ_HTTP__MAX_LATENESS", "0s")];
    let printed = run_steps(dir.path(), START_DEV, &steps, &settings);
    steps.iter().zip(&printed).for_each(|(step, printed)| assert_shown(step, printed));
    printed
}

#[test]
fn tutorial_prints_what_it_shows() {
    let page = read("docs/TUTORIAL.md");
    let numbered = (1..=10).all(|n| page.contains(&format!("\n**{n}. ")));
    assert!(numbered && !page.contains("\n**11. "), "the tutorial has ten commands");
    let printed = follow(&page);
    assert!(printed.len() >= 18, "{} steps", printed.len());
}

#[test]
fn readme_leads_to_a_completed_order() {
    let readme = read("README.md");
    let section = readme.split_once("\n## A first order\n").unwrap().1.split_once("\n## ").unwrap().0;
    let printed = follow(section);
    assert!(printed.len() == 2 && printed[1].contains("\"to_status\":\"COMPLETED\""), "{printed:?}");
    assert!(readme.lines().count() <= 110, "README.md has {} lines", readme.lines().count());
}
