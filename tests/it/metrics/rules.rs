//! Alert and recording rules, checked by `promtool`, and the agreement of rules, dashboard and runbook with /metrics.

use std::{
    collections::BTreeSet,
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

use clap::Parser;
use dispatchq::cli::Cli;
use serde_json::Value;

use super::exposed::documented_names;

fn file(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Runs `promtool` and prints its output when it fails.
fn promtool(args: &[&str], files: &[&Path]) {
    let output = Command::new("promtool").args(args).args(files).output().unwrap_or_else(|e| {
        panic!(
            "promtool cannot be run ({e}): it comes with Prometheus; `make setup` installs it, or your package manager"
        )
    });
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "promtool {args:?}:\n{}{}", said(&output.stdout), said(&output.stderr));
}

fn deployed(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/prometheus").join(name)
}

#[derive(Debug, Default)]
struct Alert {
    name: String,
    expr: String,
    severity: String,
    team: String,
    runbook: String,
}

/// Parses the rules by their layout. `promtool` checks that they are valid.
fn alerts() -> Vec<Alert> {
    let text = file("deploy/prometheus/alerts.yml");
    let mut alerts: Vec<Alert> = Vec::new();
    let mut in_expr = false;
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix("- alert: ") {
            alerts.push(Alert { name: name.to_owned(), ..Alert::default() });
        }
        let Some(alert) = alerts.last_mut() else { continue };
        let (key, value) = line.split_once(": ").or(line.strip_suffix(':').map(|key| (key, ""))).unwrap_or((line, ""));
        in_expr = key == "expr" || (in_expr && !["for", "labels"].contains(&key));
        match key {
            "expr" => alert.expr.push_str(value.trim_start_matches('|')),
            _ if in_expr => alert.expr.push_str(line),
            "severity" => value.clone_into(&mut alert.severity),
            "team" => value.clone_into(&mut alert.team),
            "runbook_url" => value.clone_into(&mut alert.runbook),
            _ => {}
        }
        alert.expr.push(' ');
    }
    alerts
}

/// Returns the title and expression of every dashboard query.
pub(super) fn queries() -> Vec<(String, String)> {
    let dashboard: Value = serde_json::from_str(&file("deploy/grafana/dispatchq.json")).unwrap();
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            queries.push((text(&panel["title"]), text(&target["expr"])));
        }
    }
    queries
}

/// Returns the name and expression of every rule of kpis.yml.
fn recorded() -> Vec<(String, String)> {
    let text = file("deploy/prometheus/kpis.yml");
    let text = text.lines().filter(|line| !line.trim().starts_with('#')).collect::<Vec<_>>().join("\n");
    let rule = |rule: &str| {
        let (name, rest) = rule.split_once('\n').unwrap();
        let (_, expr) = rest.split_once("expr:").unwrap();
        (name.to_owned(), expr.trim().trim_start_matches('|').replace('\n', " "))
    };
    text.split("- record: ").skip(1).map(rule).collect()
}

/// Returns the metrics in an expression: its words except functions, operators, labels and values.
fn metrics_of(expr: &str) -> BTreeSet<String> {
    const WORDS: [&str; 10] = ["and", "or", "unless", "bool", "by", "without", "on", "ignoring", "inf", "nan"];
    let mut text = without(expr, '"', '"');
    for (open, close) in [('{', '}'), ('[', ']')] {
        text = without(&text, open, close);
    }
    for grouping in ["by", "without", "on", "ignoring"] {
        while let Some(at) = text.find(&format!(" {grouping} (")) {
            let end = at + text[at..].find(')').unwrap();
            text.replace_range(at..=end, " ");
        }
    }
    let mut found = BTreeSet::new();
    let mut rest = text.as_str();
    while let Some(start) = rest.find(|c: char| c.is_ascii_alphabetic() || c == '_') {
        let before = rest[..start].chars().next_back();
        let word = &rest[start..];
        let end = word.find(|c: char| !(c.is_ascii_alphanumeric() || "_:".contains(c))).unwrap_or(word.len());
        let (word, after) = word.split_at(end);
        let is_number = before.is_some_and(|c| c.is_ascii_digit());
        if !is_number && !after.trim_start().starts_with('(') && !WORDS.contains(&word.to_lowercase().as_str()) {
            found.insert(word.to_owned());
        }
        rest = after;
    }
    found
}

/// Removes the text between these characters.
fn without(text: &str, open: char, close: char) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while let Some((before, inside)) = rest.split_once(open) {
        kept.push_str(before);
        rest = inside.split_once(close).expect("what opens is closed").1;
    }
    kept + rest
}

#[test]
fn an_expression_names_its_metrics() {
    let names = |expr: &str| metrics_of(expr).into_iter().collect::<Vec<_>>();
    let expr = r#"sum by (le, a) (rate(x_bucket{status="up down",a!="b"}[5m])) / sum(y_total) > 0.1 unless on (a) max(z) == 1e3"#;
    assert_eq!(names(expr), ["x_bucket", "y_total", "z"]);
    assert_eq!(names("max(dispatchq_workers) == 0 or absent(up)"), ["dispatchq_workers", "up"]);
    assert_eq!(names("max(a:b:ratio_1d) or vector(0)"), ["a:b:ratio_1d"]);
    assert_eq!(names("topk(5, sum(increase(a[$__range]))) * 60"), ["a"]);
}

// Rule L1: The KPI and JobIDRetrievalHighFailureRate count orders that were never booked.
// Rule L15: ManualRefundRequired and HighCancellationRate stay silent for orders of our own fleet.
#[test]
fn promtool_accepts_every_alert_rule() {
    promtool(&["check", "config"], &[&deployed("prometheus.yml")]);
    promtool(&["check", "rules"], &[&deployed("alerts.yml")]);
    promtool(&["test", "rules"], &[&deployed("alerts_test.yml")]);
    promtool(&["check", "rules"], &[&deployed("kpis.yml")]);
    promtool(&["test", "rules"], &[&deployed("kpis_test.yml")]);
}

#[test]
fn every_alert_has_a_firing_and_a_silent_case() {
    let text = file("deploy/prometheus/alerts_test.yml");
    let (mut firing, mut silent) = (BTreeSet::new(), BTreeSet::new());
    let mut lines = text.lines().map(str::trim);
    while let Some(line) = lines.next() {
        if let Some(name) = line.strip_prefix("alertname: ") {
            let expected = lines.next().unwrap();
            if expected == "exp_alerts: []" {
                silent.insert(name)
            } else {
                firing.insert(name)
            };
        }
    }
    let alerts = alerts();
    let all: BTreeSet<_> = alerts.iter().map(|a| a.name.as_str()).collect();
    assert_eq!((&firing, &silent), (&all, &all));
}

#[test]
fn rules_and_dashboard_use_metrics_that_are_shown() {
    // Prometheus itself creates the metric for scrape success.
    let mut known = documented_names();
    known.insert("up".to_owned());
    let alerts = alerts();
    let of_rules = alerts.iter().map(|a| (a.name.clone(), a.expr.clone()));
    let kpis = recorded();
    assert!(kpis.len() >= 8, "{kpis:?}");
    for (place, expr) in of_rules.chain(kpis.clone()).chain(queries()) {
        let used = metrics_of(&expr);
        assert!(!used.is_empty(), "{place} looks at nothing: {expr}");
        for name in used {
            let is_recorded = kpis.iter().any(|(recorded, _)| *recorded == name);
            assert!(known.contains(&name) || is_recorded, "{place}: /metrics shows no {name}: {expr}");
        }
    }
    // Each KPI has a test case, a row on its page, and a panel.
    let (cases, page) = (file("deploy/prometheus/kpis_test.yml"), file("docs/METRICS.md"));
    for (name, _) in &kpis {
        let is_asked = cases.lines().any(|line| line.trim().starts_with("- expr:") && line.contains(name.as_str()));
        let is_described = page.contains(&format!("| `{}` |", name.trim_start_matches("dispatchq:")));
        let is_drawn = queries().iter().any(|(_, expr)| expr.contains(name.as_str()));
        assert_eq!((is_asked, is_described, is_drawn), (true, true, true), "{name}");
    }
    // The rule tests use only metrics that exist.
    let test = file("deploy/prometheus/alerts_test.yml") + &cases;
    for series in test.lines().filter_map(|line| line.trim().strip_prefix("- series: ")) {
        let name = series.split('{').next().unwrap();
        assert!(known.contains(name), "tests of rules: /metrics shows no {name}");
    }
}

#[test]
fn the_dashboards_queries_are_valid() {
    let mut rules = tempfile::Builder::new().suffix(".yml").tempfile().unwrap();
    writeln!(rules, "groups:\n  - name: dashboard\n    rules:").unwrap();
    let queries = queries();
    assert!(queries.len() > 30, "{} queries", queries.len());
    for (n, (_, expr)) in queries.iter().enumerate() {
        let expr = expr.replace("$__rate_interval", "5m").replace("$__range", "6h");
        writeln!(rules, "      - record: query_{n}\n        expr: {}", Value::from(expr)).unwrap();
    }
    promtool(&["check", "rules"], &[rules.path()]);
}

#[test]
fn every_alert_has_a_valid_runbook_page() {
    let runbook = file("docs/RUNBOOK.md");
    let sections: Vec<_> = runbook.split("\n### ").skip(1).map(|text| text.split_once('\n').unwrap()).collect();
    let alerts = alerts();
    assert_eq!(alerts.len(), sections.len(), "each alert has one section");
    // The address of the documents' site, which the chart replaces by its own value.
    let site = file("scripts/docs/mkdocs.yml");
    let site = site.lines().find_map(|line| line.strip_prefix("site_url: ")).expect("the site has an address");
    let base = format!("{site}latest");
    assert!(base.starts_with("https://"), "a browser opens {base}");
    assert!(file("deploy/helm/dispatchq/values.yaml").contains("\n  docsUrl: \"\"\n"), "the chart has no default");
    let rules = file("deploy/helm/dispatchq/templates/monitoring.yaml");
    for needed in ["required \"prometheusRule.docsUrl ", &format!("replace \"{base}\" ")] {
        assert!(rules.contains(needed), "the chart lacks {needed}");
    }
    for alert in &alerts {
        let Alert { name, severity, team, runbook: link, .. } = alert;
        assert_eq!(*link, format!("{base}/RUNBOOK.html#{}", name.to_lowercase()), "{alert:?}");
        assert!(["P0", "P1", "P2", "P3", "Warning", "Critical"].contains(&severity.as_str()), "{alert:?}");
        assert!(["mrg", "supporting-reservation"].contains(&team.as_str()), "{alert:?}");
        let (_, text) = sections.iter().find(|(title, _)| title == name).unwrap_or_else(|| panic!("no section {name}"));
        let text = text.split("\n## ").next().unwrap();
        for part in ["**Means**", "**Look**", "**Do**"] {
            assert!(text.contains(part), "{name} lacks {part}");
        }
    }
    let in_blocks = runbook.lines().filter(|line| line.starts_with("dispatchq "));
    let in_text = runbook.split('`').skip(1).step_by(2).filter(|code| code.starts_with("dispatchq "));
    let commands: Vec<_> = in_blocks.chain(in_text).filter(|c| !c.contains('\n')).collect();
    assert!(commands.len() > 50, "{} commands", commands.len());
    for command in commands {
        let command = command.split(" #").next().unwrap();
        if let Err(error) = Cli::try_parse_from(words(command)) {
            panic!("the runbook says {command}\n{error}");
        }
    }
}

// Rule L11: Every command of the rollout page exists, and the page names each step.
#[test]
fn rollout_commands_exist() {
    let page = file("docs/ROLLOUT.md");
    for step in ["Shadow mode", "Pilot areas", "Expansion", "All areas", "| 10 % |", "| 50 % |", "| 100 % |"] {
        assert!(page.contains(step), "no step {step}");
    }
    let in_blocks = page.lines().filter(|line| line.starts_with("dq "));
    let in_text = page.split('`').skip(1).step_by(2).filter(|code| code.starts_with("dq "));
    let commands: Vec<_> = in_blocks.chain(in_text).filter(|code| !code.contains('\n')).collect();
    assert!(commands.len() > 15, "{} commands", commands.len());
    for command in commands {
        let command = command.replacen("dq", "dispatchq", 1);
        if let Err(error) = Cli::try_parse_from(words(command.split(" #").next().unwrap())) {
            panic!("the page says {command}\n{error}");
        }
    }
}

/// Splits a command as a shell would, at blanks and quotes.
fn words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (n, part) in command.split('"').enumerate() {
        if n % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}
