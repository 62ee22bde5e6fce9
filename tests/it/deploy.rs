//! The files of deploy/ use names that exist in the code: settings, commands, queues, ports, paths, metrics and roles.
//! `make kit` lints them.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use clap::Parser;
use dispatchq::cli::Cli;

use crate::support::{Child, Fleet, eventually, run_binary, secs};

/// Pages with commands that readers copy unchanged.
const PAGES: [&str; 3] = ["docs/DEPLOY.md", "docs/UPGRADE.md", "docs/BACKUP.md"];
const CHART: &str = "deploy/helm/dispatchq";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
}

fn files_below(dir: &Path, found: &mut Vec<PathBuf>) {
    // Rules, dashboard and roles have their own tests. `secrets` is where an installation on this machine stores its
    // secrets.
    const LEFT_OUT: [&str; 5] = ["files", "grafana", "postgres", "prometheus", "secrets"];
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !path.is_dir() {
            found.push(path);
        } else if !LEFT_OUT.contains(&name.as_str()) {
            files_below(&path, found);
        }
    }
}

/// Returns the files of the kit and its documentation pages, each with its path.
fn kit() -> Vec<(String, String)> {
    let mut files: Vec<PathBuf> = PAGES.iter().map(|page| root().join(page)).collect();
    files_below(&root().join("deploy"), &mut files);
    assert!(files.len() > 20, "only {} files were found", files.len());
    let with_text = |path: PathBuf| (path.display().to_string(), fs::read_to_string(&path).unwrap());
    files.into_iter().map(with_text).collect()
}

/// Returns the words of a text that start with `prefix` and continue with characters that satisfy `is_part`.
fn words_with(text: &str, prefix: &str, is_part: fn(char) -> bool) -> BTreeSet<String> {
    let word = |(at, _): (usize, &str)| {
        let rest = &text[at..];
        let end = rest.find(|c: char| !is_part(c)).unwrap_or(rest.len());
        rest[..end].to_owned()
    };
    text.match_indices(prefix).map(word).collect()
}

/// Returns the number at the start of a text, if any.
fn leading_number(text: &str) -> Option<u16> {
    let text = text.trim_start().trim_start_matches('"');
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

/// Returns the ports of the addresses in `_BIND` settings of this text.
fn bound_ports(text: &str) -> Vec<u16> {
    let lines = text.lines().filter(|line| line.contains("_BIND"));
    lines.filter_map(|line| leading_number(line.rsplit_once(':')?.1)).collect()
}

/// Returns the queue names in a text.
fn queues_in(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !(c.is_ascii_lowercase() || c == '-'));
    words.filter(|word| word.ends_with("-queue")).collect()
}

#[test]
fn every_variable_of_the_kit_is_a_setting() {
    let is_part = |c: char| c.is_ascii_uppercase() || c == '_';
    let mut names = BTreeSet::new();
    for (_, text) in kit() {
        names.extend(words_with(&text, "DISPATCHQ_", is_part).into_iter().filter(|name| name.contains("__")));
    }
    assert!(names.len() >= 8, "{names:?}");
    let dir = tempfile::tempdir().unwrap();
    fs::write(
        dir.path().join("config.toml"),
        read("deploy/profile-support/config.toml") + "[partners.bbd]\nurl = \"https://partner.example.com\"\n",
    )
    .unwrap();
    let secret = |name: &str, text: &str| {
        fs::write(dir.path().join(name), text).unwrap();
        name.to_owned()
    };
    let value = |name: &str| match name {
        "DISPATCHQ_DATABASE__URL_FILE" => secret("database", "postgres://u:p@db.example.com/dispatchq\n"),
        "DISPATCHQ_DATABASE__MAINTENANCE_URL_FILE" => {
            secret("maintenance", "postgres://m:p@db.example.com/dispatchq\n")
        }
        "DISPATCHQ_REDIS__URL_FILE" => secret("redis", "redis://:p@redis.example.com:6379/0\n"),
        "DISPATCHQ_REDIS__ROOT_CERTIFICATE" => String::new(),
        "DISPATCHQ_CHANNELS__SLACK__URL_FILE" => secret("slack", "https://hooks.example.com/T0\n"),
        "DISPATCHQ_CHANNELS__EMAIL__PASSWORD_FILE" => secret("mail", "hunter2\n"),
        "DISPATCHQ_CHANNELS__TICKET__TOKEN_FILE" => secret("ticket", "hunter2\n"),
        "DISPATCHQ_PARTNERS__BBD__API_KEY_FILE" => secret("partner", "hunter2\n"),
        "DISPATCHQ_HTTP__BIND" | "DISPATCHQ_HTTP__ADMIN_BIND" | "DISPATCHQ_WORKER__ADMIN_BIND" => {
            "127.0.0.1:0".to_owned()
        }
        "DISPATCHQ_LOG__FORMAT" => "json".to_owned(),
        "DISPATCHQ_LOG__FILTER" => "info".to_owned(),
        "DISPATCHQ_TRACES__ENDPOINT" => "https://collector.example.com/v1/traces".to_owned(),
        "DISPATCHQ_TRACES__HEADERS_FILE" => secret("headers", "authorization=Bearer%20hunter2\n"),
        _ => panic!("the kit uses {name}: give it a value here"),
    };
    let settings: Vec<(&str, String)> = names.iter().map(|name| (name.as_str(), value(name))).collect();
    let settings: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let checked = run_binary(dir.path(), &["config", "check"], &settings);
    assert_eq!((checked.code, checked.stderr.as_str()), (Some(0), ""), "{checked:?}");
}

/// Returns the dispatchq commands in a line, without the program name.
fn commands_of(line: &str) -> Vec<&str> {
    let line = line.trim();
    let mut found: Vec<&str> =
        line.split('`').skip(1).step_by(2).filter_map(|code| code.strip_prefix("dispatchq ")).collect();
    found.extend(line.strip_prefix("dispatchq "));
    for before in ["/usr/local/bin/dispatchq ", "-- dispatchq ", "exec serve dispatchq "] {
        found.extend(line.split_once(before).map(|(_, command)| command));
    }
    found
}

fn parse_command(place: &str, words: &[&str]) {
    let words: Vec<&str> = std::iter::once("dispatchq").chain(words.iter().copied()).collect();
    match Cli::try_parse_from(words.iter().copied()) {
        Err(error) if error.kind() != clap::error::ErrorKind::DisplayHelp => {
            panic!("{place} runs {words:?}\n{error}")
        }
        _ => {}
    }
}

#[test]
fn every_command_of_the_kit_exists() {
    let (mut in_text, mut in_lists) = (0, 0);
    for (place, text) in kit() {
        for command in text.lines().flat_map(commands_of) {
            let command = command.split(['#', '>']).next().unwrap_or_default();
            parse_command(&place, &command.split_whitespace().collect::<Vec<_>>());
            in_text += 1;
        }
        for line in text.lines().map(str::trim) {
            let list = line.strip_prefix("command: [").or_else(|| line.strip_prefix("args: ["));
            let Some(list) = list.and_then(|list| list.strip_suffix(']')) else { continue };
            let words: Vec<_> = list.split(',').map(str::trim).collect();
            if words[0] != "redis-server" {
                parse_command(&place, &words);
                in_lists += 1;
            }
        }
    }
    assert!(in_text >= 15 && in_lists >= 5, "{in_text} commands in texts, {in_lists} in lists");

    let mut health_checks = 0;
    for file in ["deploy/Dockerfile", "deploy/compose.yaml", "deploy/compose/trial.yaml"] {
        for line in read(file).lines().map(|line| line.replace('"', "")) {
            let Some((_, list)) = line.split_once("/usr/local/bin/dispatchq, ") else { continue };
            parse_command(file, &list.trim_end_matches(']').split(", ").collect::<Vec<_>>());
            health_checks += 1;
        }
    }
    assert_eq!(health_checks, 3, "one of the image, one of serve and work in each Compose file");

    let work = read(&format!("{CHART}/templates/work.yaml"));
    let args = work.split_once("args:\n").unwrap().1.split_once("{{- include").unwrap().0;
    let args = args.lines().filter_map(|line| line.trim().strip_prefix("- "));
    let args: Vec<_> = args
        .map(|word| match word {
            "{{ join \",\" $own.queues }}" => "notify-queue,binding-queue",
            "{{ . | quote }}" => "16",
            word => word,
        })
        .collect();
    assert_eq!(args.len(), 7, "{args:?}");
    parse_command("the chart", &args);

    let build = read("deploy/Dockerfile");
    assert!(build.contains("cargo build --locked --release --no-default-features -p dispatchq "));
}

#[test]
fn deployment_files_name_the_version_of_cargo() {
    let version = env!("CARGO_PKG_VERSION");
    let chart = read(&format!("{CHART}/Chart.yaml"));
    let lines = ["version", "appVersion"].map(|name| format!("\n{name}: {version}\n"));
    assert!(lines.iter().all(|line| chart.contains(line)), "{lines:?}: {chart}");
    let mut images = 0;
    for (place, text) in kit() {
        let tags = text.split("image: dispatchq:").skip(1).filter_map(|rest| rest.split_whitespace().next());
        for tag in tags {
            assert_eq!(tag, version, "{place}");
            images += 1;
        }
    }
    assert!(images >= 3, "only {images} images were found");
}

#[test]
fn every_queue_is_served_in_each_way_of_running() {
    let all: BTreeSet<&str> = jobs::queues::ALL.into_iter().collect();
    let mut files = Vec::new();
    files_below(&root().join("deploy/systemd"), &mut files);
    let texts: Vec<String> = files
        .iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "env"))
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let of_systemd: BTreeSet<&str> = texts.iter().flat_map(|text| queues_in(text)).collect();
    assert_eq!(of_systemd, all, "deploy/systemd");
    for file in ["values.yaml", "values.schema.json", "templates/work.yaml"] {
        let text = read(&format!("{CHART}/{file}"));
        assert_eq!(queues_in(&text), all, "{file}");
    }
}

/// Each command reads the whole configuration, even one that uses only Postgres. With redis.root_certificate it refuses
/// a Redis address without TLS.
#[test]
fn each_unit_has_the_addresses_of_both_servers() {
    let mut units = Vec::new();
    files_below(&root().join("deploy/systemd"), &mut units);
    units.retain(|file| file.extension().is_some_and(|extension| extension == "service"));
    assert_eq!(units.len(), 4, "{units:?}");
    for unit in units {
        let text = fs::read_to_string(&unit).unwrap();
        for line in [
            "Environment=DISPATCHQ_DATABASE__URL_FILE=%d/database-url",
            "LoadCredential=redis-url:/etc/dispatchq/secrets/redis-url",
            "Environment=DISPATCHQ_REDIS__URL_FILE=%d/redis-url",
        ] {
            assert!(text.lines().any(|l| l == line), "{} lacks {line}", unit.display());
        }
    }
}

#[test]
fn units_that_stay_are_watched() {
    for unit in ["dispatchq-serve", "dispatchq-work@"] {
        let text = read(&format!("deploy/systemd/{unit}.service"));
        for line in ["Type=notify", "NotifyAccess=main", "WatchdogSec=60", "Restart=always"] {
            assert!(text.lines().any(|l| l == line), "{unit} lacks {line}");
        }
    }
}

#[test]
fn ports_fit_each_other_and_paths_are_answered() {
    let image = read("deploy/Dockerfile");
    let exposed = image.lines().find_map(|line| line.strip_prefix("EXPOSE ")).unwrap();
    let exposed: BTreeSet<u16> = exposed.split_whitespace().filter_map(leading_number).collect();
    assert_eq!(exposed, BTreeSet::from([8080, 9090]));
    assert_eq!(bound_ports(&image).into_iter().collect::<BTreeSet<_>>(), exposed);
    let helpers = read(&format!("{CHART}/templates/_helpers.tpl"));
    assert_eq!(bound_ports(&helpers).into_iter().collect::<BTreeSet<_>>(), exposed);
    let serve = read(&format!("{CHART}/templates/serve.yaml"));
    let container: BTreeSet<u16> = serve.split("containerPort:").skip(1).filter_map(leading_number).collect();
    assert_eq!(container, exposed);
    let compose = read("deploy/compose.yaml");
    assert!(compose.contains("ports: [\"127.0.0.1:8080-8081:8080\"]"));
    assert!(read("deploy/compose/prometheus.yml").lines().any(|line| line.trim() == "port: 9090"));

    // These processes share one host.
    let mut files = Vec::new();
    files_below(&root().join("deploy/systemd"), &mut files);
    let ports: Vec<u16> = files.iter().flat_map(|path| bound_ports(&fs::read_to_string(path).unwrap())).collect();
    let distinct: BTreeSet<u16> = ports.iter().copied().collect();
    assert!(ports.len() >= 5 && distinct.len() == ports.len(), "{ports:?}");

    let routes = read("crates/api/src/lib.rs");
    let mut found = 0;
    for (place, text) in kit() {
        let probes = text.split("path: /").skip(1).filter(|_| place.contains("templates"));
        for path in probes.filter_map(|rest| rest.split([' ', '\n', ',']).next()) {
            assert!(routes.contains(&format!(".route(\"/{path}\"")), "{place}: the admin port has no /{path}");
            found += 1;
        }
    }
    assert!(found >= 6, "only {found} paths were found");
    // Path that KEDA requests, and the value that it reads from the response.
    let asked = helpers.split_once("printf \"%s/").unwrap().1;
    let path = asked.split('?').next().unwrap();
    assert!(routes.contains(&format!(".route(\"/{path}\"")), "the admin port has no /{path}");
    let value = helpers.lines().find_map(|line| line.trim().strip_prefix("valueLocation: ")).unwrap();
    assert!(read("crates/model/src/scale.rs").contains(&format!("pub {value}: u64,")), "no number is called {value}");
    for path in ["/healthz", "/readyz"] {
        assert!(read(&format!("{CHART}/values.schema.json")).contains(&format!("\"{path}\"")), "{path}");
    }
}

// Rule F42: By default the chart opens /metrics only to the release's namespace and blocks link-local addresses for
// processes.
#[test]
fn chart_closes_metrics_and_link_local_addresses() {
    let values = read("deploy/helm/dispatchq/values.yaml");
    for default in ["\n  metricsFrom: []\n", "\n  egress: []\n"] {
        assert!(values.contains(default), "{default}");
    }
    let policy = read("deploy/helm/dispatchq/templates/networkpolicy.yaml");
    let (_, metrics) = policy.split_once("port: 9090").unwrap();
    let (ingress, egress) = metrics.split_once("  egress:").unwrap();
    let default_of = |text: &str| text.split_once("{{- else }}").unwrap().1.to_owned();
    assert!(default_of(ingress).contains("- podSelector: {}"), "{ingress}");
    let open = default_of(egress);
    for closed in ["cidr: 0.0.0.0/0, except: [169.254.0.0/16]", "cidr: \"::/0\", except: [\"fe80::/10\""] {
        assert!(open.contains(closed), "{closed}: {open}");
    }
    let types = policy.split_once("policyTypes:").unwrap().1.split_once("ingress:").unwrap().0;
    assert!(types.contains("- Egress") && !types.contains("if"), "{types}");
}

#[test]
fn metrics_and_roles_of_the_kit_exist() {
    let (metrics, roles) = (read("docs/METRICS.md"), read("deploy/postgres/roles.sql"));
    for (place, text) in kit() {
        for name in words_with(&text, "dispatchq_", |c| c.is_ascii_lowercase() || c == '_') {
            let is_known = metrics.contains(&format!("| `{name}` |")) || roles.contains(&name);
            assert!(is_known, "{place} names {name}");
        }
    }
}

#[test]
fn the_chart_brings_the_rules_and_the_dashboard_there_are() {
    for (link, original) in [
        ("alerts.yml", "deploy/prometheus/alerts.yml"),
        ("kpis.yml", "deploy/prometheus/kpis.yml"),
        ("dispatchq.json", "deploy/grafana/dispatchq.json"),
    ] {
        assert!(read(&format!("{CHART}/files/{link}")) == read(original), "{link} is not {original}");
    }
    // The alert rules depend on this job name.
    let job = "targetLabel: job, replacement: dispatchq";
    assert!(read(&format!("{CHART}/templates/monitoring.yaml")).contains(job));
    assert!(read("deploy/compose/prometheus.yml").contains("job_name: dispatchq\n"));
}

/// Runs a program to its end and returns its output.
fn run_program(program: impl AsRef<std::ffi::OsStr>, args: &[&str]) -> String {
    let ended = Command::new(program).args(args).output().unwrap();
    assert!(ended.status.success(), "{args:?}: {ended:?}");
    String::from_utf8(ended.stdout).unwrap()
}

/// The files that deploy/Dockerfile copies into an empty image are sufficient: `serve` runs with nothing else, as a
/// user without write access.
#[cfg_attr(not(target_os = "linux"), ignore = "the image is one of Linux")]
#[tokio::test]
async fn image_tree_is_small_and_runs_serve() {
    let fleet = Fleet::start().await;
    let tree = fleet.dir().join("image");
    let binary = env!("CARGO_BIN_EXE_dispatchq");
    // The image build checks the size of the release binary. The test binary is much larger, so its size is subtracted
    // here.
    let files = run_program(root().join("scripts/image-tree"), &[binary, tree.to_str().unwrap(), "4000000000"]);
    let (bytes, _) = files.lines().last().unwrap().trim().split_once(' ').unwrap();
    let beside = bytes.parse::<u64>().unwrap() - fs::metadata(binary).unwrap().len();
    assert!(beside < 15_000_000, "{files}");
    assert!(!files.contains("/bin/sh"), "{files}");

    let mut inside = if run_program("id", &["-u"]).trim() == "0" {
        let mut chroot = Command::new("/usr/sbin/chroot");
        chroot.arg("--userspec=65532:65532").arg(&tree);
        chroot
    } else {
        let mut unshare = Command::new("unshare");
        unshare.arg("--map-root-user").arg(format!("--root={}", tree.display()));
        unshare
    };
    let database = &fleet.app.config.database;
    inside.args(["/usr/local/bin/dispatchq", "serve"]).env_clear();
    inside.env("DISPATCHQ_DATABASE__URL", &database.url).env("DISPATCHQ_DATABASE__POOLER", database.pooler.to_string());
    inside.env("DISPATCHQ_DATABASE__POOLER_STATEMENTS", database.pooler_statements.to_string());
    inside.env("DISPATCHQ_REDIS__URL", fleet.redis.url());
    inside.env("DISPATCHQ_HTTP__BIND", "127.0.0.1:0").env("DISPATCHQ_HTTP__ADMIN_BIND", "");
    let api = Child::start(fleet.dir(), "image", inside);
    let address = || api.said("Serving the API", "address");
    eventually("the API listens", || async { address().is_some() }).await;
    let ready = format!("http://{}/readyz", address().unwrap());
    let client = foundation::outbound::build_client(secs(30)).unwrap();
    assert_eq!(client.get(ready).send().await.unwrap().status(), 200);
}
