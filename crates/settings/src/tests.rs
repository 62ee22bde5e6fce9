mod bounds;
mod waves;

use std::{io::Write, time::Duration};

use super::*;
use foundation::config::address::without_password;

fn with_file(text: &str) -> Result<Config, ConfigError> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    Config::from_sources(Some(file.path()), std::iter::empty())
}

fn variables(of: &[(&str, &str)]) -> std::vec::IntoIter<(OsString, OsString)> {
    of.iter().map(|(name, value)| (name.into(), value.into())).collect::<Vec<_>>().into_iter()
}

fn error(text: &str) -> String {
    with_file(text).unwrap_err().to_string()
}

#[test]
fn shipped_file_has_the_required_durations() {
    let policy = Config::defaults().policy_for_type(&"RIDE".into());
    assert_eq!((policy.attempt.as_secs(), policy.lifetime.as_secs()), (120, 1800));
    assert_eq!(policy.retry, [Duration::from_secs(15)]);
}

#[test]
fn every_queue_is_served() {
    let concurrency = Config::defaults().worker.concurrency;
    for queue in jobs::queues::ALL {
        assert!(concurrency.contains_key(queue), "config.toml: worker.concurrency lacks {queue}");
    }
}

#[test]
fn service_type_overrides_the_defaults() {
    let config = with_file("[service_types.TOW]\nattempt = \"5m\"\nexhausted = \"alert\"").unwrap();
    assert_eq!(config.policy_for_type(&"TOW".into()).attempt.as_secs(), 300);
    assert_eq!(config.policy_for_type(&"TOW".into()).lifetime.as_secs(), 1800);
    assert_eq!(config.policy_for_type(&"RIDE".into()).attempt.as_secs(), 120);
}

#[test]
fn any_service_type_may_allow_several_offers() {
    assert!(!Config::defaults().allows_several_offers());
    for of in ["dispatch", "service_types.TOW"] {
        let config = with_file(&format!("[{of}]\noffers_per_driver = 2")).unwrap();
        assert!(config.allows_several_offers(), "{of}");
    }
}

#[test]
fn environment_overrides_the_file() {
    let env = [("DISPATCHQ_REDIS__URL", "redis://elsewhere:1"), ("DISPATCHQ_DISPATCH__ATTEMPT", "400ms")];
    let config = Config::from_sources(None, variables(&env)).unwrap();
    assert_eq!(config.redis.url, "redis://elsewhere:1");
    assert_eq!(config.dispatch.attempt, Duration::from_millis(400));
}

#[test]
fn unknown_key_error_names_the_key() {
    assert!(error("[dispatch]\natempt = \"1s\"").contains("atempt"));
    assert!(error("[dispach]\nattempt = \"1s\"").contains("dispach"));
}

#[test]
fn invalid_value_is_refused_with_its_path() {
    assert!(error("[dispatch]\nattempt = \"fast\"").contains("fast"));
    assert!(error("[worker.concurrency]\nmail-queue = 3").contains("mail-queue"));
    assert!(error("[notifications]\nsupport = [\"pager\"]").contains("[channels.pager]"));
    assert!(error("[service_types.RIDE]\nlifetime = \"0s\"").contains("lifetime"));
    assert!(error("[bindings]\nmetrics_for = [\"B 7\"]").contains("'B 7' is no binding id"));
    let many: Vec<String> = (0..101).map(|n| format!("\"B{n}\"")).collect();
    let named = format!("[bindings]\nmetrics_for = [{}]", many.join(", "));
    assert!(error(&named).contains("bindings.metrics_for must name at most 100 bindings, not 101"));
    assert!(error("[retention]\norders = \"0s\"").contains("retention.orders must be 1day to"));
    assert!(error("[retention]\ndead_jobs = \"30m\"").contains("retention.dead_jobs must be 1day to"));
}

#[test]
fn id_prefix_is_checked_when_it_is_read() {
    assert_eq!(Config::defaults().ids.prefix.as_str(), "");
    assert_eq!(with_file("[ids]\nprefix = \"jkt1\"").unwrap().ids.prefix.as_str(), "jkt1");
    let cure = "ids.prefix must have 1 to 8 characters, each of a to z or 0 to 9, such as \"jkt\"; leave it empty for no prefix";
    for bad in ["JKT", "jkt-1", "abcdefghi", " "] {
        let told = error(&format!("[ids]\nprefix = {bad:?}"));
        assert!(told.contains(cure), "{told}");
    }
}

#[test]
fn templates_are_checked_at_startup() {
    let own = with_file("[texts.templates.en]\ntrip_taken = \"Too late\"").unwrap();
    assert_eq!(own.notifications.texts, own.texts, "customer messages use these texts");
    let told = error("[texts.templates.vi]\ntrip_taken = \"{driver}\"\nvoice_news = \"\"");
    assert!(told.contains("texts.templates.vi.trip_taken: no placeholder {driver}; this text has none"), "{told}");
    assert!(told.contains("texts.templates.vi.voice_news is empty"), "{told}");
    assert!(error("[texts.templates.vi]\ntrip_takn = \"x\"").contains("trip_takn"));
    for unknown in ["[texts.templates.fr]\ntrip_taken = \"x\"", "[texts]\ndriver_language = \"fr\""] {
        assert!(with_file(unknown).is_err(), "there are no texts in French");
    }
}

#[test]
fn redis_address_is_checked_offline() {
    for good in ["rediss://h:1", "redis+sentinel://u:p@a:1,b:2/main", "rediss+sentinel://a:1,b/main/2?password=x"] {
        with_file(&format!("[redis]\nurl = {good:?}")).unwrap();
    }
    with_file("[redis]\nurl = \"redis+cluster://u:p@a:7000,b:7001\"").unwrap();
    assert!(error("[redis]\nurl = \"redis+cluster://a:7000/2\"").contains("a cluster has only database 0"));
    assert!(error("[redis]\nurl = \"localhost:6379\"").contains("redis.url is not a Redis address"));
    assert!(error("[redis]\nurl = \"redis+sentinel://a:1\"").contains("the primary's name is missing"));
    assert!(error("[redis]\nroot_certificate = \"nowhere.pem\"").contains("cannot read the file nowhere.pem"));
    let file = tempfile::NamedTempFile::new().unwrap();
    let certificate = |url: &str| error(&format!("[redis]\nurl = {url:?}\nroot_certificate = {:?}", file.path()));
    assert!(certificate("rediss://h:1").contains("it contains no certificate"));
    assert!(certificate("redis://h:1").contains("redis.url does not use TLS"));
}

#[test]
fn multi_host_address_hides_its_password() {
    for (url, shown) in [
        ("redis+sentinel://a:1,b:2/main", "redis+sentinel://a:1,b:2/main"),
        ("rediss+sentinel://u:hun@ter2@a:1/main/2?password=hunter2", "rediss+sentinel://***@a:1/main/2"),
        ("redis+sentinel://a:1/main?password=hun@ter2", "redis+sentinel://***"),
        ("redis+cluster://a:1,b:2", "redis+cluster://a:1,b:2"),
        ("rediss+cluster://u:hun@ter2@a:1,b:2", "rediss+cluster://***@a:1,b:2"),
    ] {
        assert_eq!(without_password(url), shown);
    }
}

#[test]
fn shipped_partner_example_has_the_defaults() {
    let shown: String = DEFAULTS
        .lines()
        .skip_while(|line| !line.starts_with("# [partners.bbd]"))
        .take_while(|line| line.starts_with('#'))
        .filter_map(|line| line.strip_prefix("# ").filter(|line| !line.starts_with('#')))
        .map(|line| format!("{line}\n"))
        .collect();
    let shown = with_file(&shown).unwrap().partners.remove("bbd").unwrap();
    let least = "[partners.bbd]\nurl = \"https://dispatch.example.com/api\"";
    let least = with_file(least).unwrap().partners.remove("bbd").unwrap();
    assert_eq!(serde_json::to_value(shown).unwrap(), serde_json::to_value(least).unwrap());
}

/// Returns the lines of an example in the shipped file, without their comment marks.
fn shipped_example(heading: &str) -> String {
    let example = DEFAULTS.lines().skip_while(|line| line.strip_prefix("# ") != Some(heading));
    let example = example.take_while(|line| line.starts_with('#')).filter_map(|line| line.strip_prefix("# "));
    example.map(|line| format!("{line}\n")).collect()
}

#[test]
fn business_hours_that_never_open_are_refused() {
    assert_eq!(Config::defaults().notifications.business_hours, None, "round the clock");
    let shown = shipped_example("[notifications.business_hours]");
    let hours = with_file(&shown).unwrap().notifications.business_hours.unwrap();
    assert_eq!((hours.time_zone.name(), hours.weekdays.len(), hours.holidays.len()), ("Asia/Jakarta", 5, 2));
    for (line, wrong, said) in [
        ("time_zone = \"Asia/Jakarta\"", "time_zone = \"Jakarta\"", "'Jakarta' is not a time zone"),
        ("weekdays = [\"Mon\", \"Tue\", \"Wed\", \"Thu\", \"Fri\"]", "weekdays = []", "the desk would never open"),
        ("opens = \"08:00\"", "opens = \"18:00\"", "must be later than opens, 18:00"),
        ("opens = \"08:00\"", "opens = \"8\"", "'8' is not a time of day"),
        ("closes = \"17:00\"", "closes = \"24:01\"", "'24:01' is not a time of day"),
    ] {
        let told = error(&shown.replace(line, wrong));
        assert!(told.contains(said), "{wrong}: {told}");
    }
    assert!(error("[notifications]\nsla_warning = \"2years\"").contains("notifications.sla_warning must be"));
}

#[test]
fn shipped_oidc_example_has_the_defaults() {
    assert_eq!(Config::defaults().console.oidc, None, "no OIDC by default");
    let shown = shipped_example("[console.oidc]");
    let least = shown.lines().filter(|line| !["scopes", "name_claim"].iter().any(|name| line.starts_with(name)));
    let least: String = least.map(|line| format!("{line}\n")).collect();
    assert!(least.len() < shown.len());
    let oidc = |text: &str| with_file(text).unwrap().console.oidc.unwrap();
    assert_eq!(oidc(&shown), oidc(&least));
}

#[test]
fn links_of_the_console_are_checked() {
    assert_eq!(Config::defaults().console.links, ConsoleLinks::default(), "no links by default");
    let links = with_file(&shipped_example("[console.links]")).unwrap().console.links;
    assert_eq!(links.order.as_deref(), Some("https://crm.example.com/{metadata.crm_id}"));
    assert!([links.customer, links.driver, links.booking].iter().all(Option::is_some));
    for (link, problem) in [
        ("order = \"http://crm.example.com/{id}\"", "console.links.order must start with https://"),
        ("booking = \"https://{id}.example.com/\"", "console.links.booking must have its host, without a placeholder"),
        (
            "driver = \"https://hr.example.com/{driver}\"",
            "console.links.driver must have no unknown placeholder such as {driver}; known are {id}",
        ),
        ("partner = \"https://p.example.com/{id}\"", "partner"),
    ] {
        let told = error(&format!("[console.links]\n{link}"));
        assert!(told.contains(problem), "{link}: {told}");
    }
}

#[test]
fn several_partners_have_shares_or_an_order() {
    let with = |own: &str| {
        let partner = |name: &str| format!("[partners.{name}]\nurl = \"https://{name}.example.com\"\n");
        with_file(&format!("{}{}[service_types.TAXI]\n{own}", partner("bbd"), partner("xyz")))
    };
    let shared = with("partners = [{ name = \"bbd\", share = 70 }, { name = \"xyz\", share = 30 }]").unwrap();
    assert_eq!(shared.partner_of(&"TAXI".into()), Some("bbd".into()));
    with("partners = [{ name = \"bbd\" }, { name = \"xyz\" }]").unwrap();
    for (own, problem) in [
        ("partners = []", "service_types.TAXI.partners is empty"),
        ("partners = [{ name = \"abc\" }]", "service_types.TAXI: no partner 'abc'; add [partners.abc]"),
        ("partners = [{ name = \"bbd\", share = 0 }]", "share must be 1 to 10000, not 0"),
        ("partners = [{ name = \"bbd\" }, { name = \"bbd\" }]", "service_types.TAXI.partners: names 'bbd' twice"),
        ("partners = [{ name = \"bbd\", share = 1 }, { name = \"xyz\" }]", "give each a share, or none"),
        ("partner = \"bbd\"\npartners = [{ name = \"xyz\" }]", "not both"),
        ("partners = [{ name = \"bbd\", weight = 1 }]", "weight"),
    ] {
        let told = with(own).unwrap_err().to_string();
        assert!(told.contains(problem), "{own}: {told}");
    }
}

#[test]
fn all_problems_are_listed_on_lines() {
    let told = error(
        "[dispatch]\nattempt = \"0s\"\n[http]\ntrusted_proxies = [\"lb\"]\n[worker.concurrency]\nmail-queue = 0\n\
         [retention]\norders = \"400days\"\nevents = \"30days\"\n[redis]\nurl = \"localhost\"\n\
         [service_types.tow]\npartner = \"bbd\"\ndriver_channels = [\"calls\"]\n[schedules.cleanup]\nevery = \"1ms\"",
    );
    for problem in [
        "\n  dispatch.attempt must be 1ms to ",
        "\n  http.trusted_proxies: 'lb' is neither an address nor a network",
        "\n  worker.concurrency: no queue 'mail-queue'; queues are ",
        "\n  worker.concurrency.mail-queue must be 1 to 100000, not 0",
        "\n  retention.events must not be shorter than retention.orders",
        "\n  redis.url is not a Redis address",
        "\n  service_types.tow: names are 1 to 64 capital letters",
        "\n  service_types.tow: no partner 'bbd'; add [partners.bbd]",
        "\n  service_types.tow.driver_channels: no channel 'calls'; add [channels.calls]",
        "\n  schedules.cleanup.every must be 1s to ",
    ] {
        assert!(told.contains(problem), "{problem}: {told}");
    }
    assert!(told.starts_with("10 settings cannot be used:"), "{told}");
    assert_eq!(told.lines().count(), 11, "{told}");
}

// Rule U10: All wrong settings are named at once, with their place and in plain words.
#[test]
fn wrong_values_are_named_at_once_in_plain_words() {
    let told = error(
        "[http]\nmax_connections = \"many\"\nbind = 8080\nmax_connections_per_address = -1\n[dispatch]\nattempt = \"fast\"\natempt = \"1s\"\n\
         retry = \"15s\"\nradius_m = 0\n[log]\nformat = \"xml\"\n[console]\nenabled = \"maybe\"\n[redis]\nurl = { a = 1 }\n\
         [partners.bbd]\nrate_per_s = 7\n[service_types.TAXI]\npartner = \"bbd\"\n\
         [producers.shop]\nurl = \"https://shop.example.com\"\nsecret = \"whsec_c2VjcmV0SECRETc2VjcmV0SECRETc2Vj\"\nevents = [\"order.flown\"]\n\
         [providers]\nbank = 5\n[dispach]\nattempt = \"1s\"",
    );
    for problem in [
        "\n  http.max_connections must be a whole number from 0 to 4294967295, not a text",
        "\n  http.bind must be HOST:PORT, such as 127.0.0.1:8080",
        "\n  http.max_connections_per_address must be a whole number from 0 to 4294967295",
        "\n  dispatch.attempt: 'fast' is not a duration",
        "\n  dispatch.atempt: no such setting; known are ",
        "\n  dispatch.retry must be a list, not a text",
        "\n  dispatch.radius_m must be 1 to 20100000, not 0",
        "\n  log.format must be one of text, json, not 'xml'",
        "\n  console.enabled must be true or false, not a text",
        "\n  redis.url must be a text, not a table",
        "\n  partners.bbd.url is missing",
        "\n  producers.shop.events.0: 'order.flown' is not an event; name some of order.",
        "\n  providers.bank must be a table, not a whole number",
        "\n  dispach: no such setting; known are redis, ",
    ] {
        assert!(told.contains(problem), "{problem}: {told}");
    }
    assert_eq!(told.lines().count(), 15, "one line per problem, without consequential errors: {told}");
    for jargon in ["invalid type", "enum ", "variant", "struct", "u32", "sequence", "serde"] {
        assert!(!told.contains(jargon), "{jargon}: {told}");
    }
}

// Rule F22: The table of a producer in the configuration must have the name of the producer's API key.
#[test]
fn producer_names_must_be_key_names() {
    for name in ["ＳＨＯＰ", "shop ", "sh\u{200b}op"] {
        let told = error(&format!("[producers.\"{name}\"]\nevents = [\"order.assigned\"]\n"));
        assert!(told.contains("names are those of API keys"), "{name:?}: {told}");
    }
}

#[test]
fn pages_with_links_need_a_public_address() {
    for page in ["driver_page", "tracking"] {
        let problem = error(&format!("[http]\n{page} = true"));
        assert!(problem.contains(&format!("http.{page}: needs http.public_url; set it to")), "{problem}");
        let served = format!("[http]\n{page} = true\npublic_url = \"https://dispatch.example.com\"");
        assert!(with_file(&served).is_ok(), "{page}");
    }
}

#[test]
fn public_address_has_no_path() {
    let public = |text: &str| with_file(&format!("[http]\npublic_url = \"{text}\""));
    for (text, address) in [
        ("https://dispatch.example.com", "https://dispatch.example.com/driver"),
        ("https://dispatch.example.com:8443/", "https://dispatch.example.com:8443/driver"),
    ] {
        assert_eq!(public(text).unwrap().http.public_address("/driver"), address);
    }
    let refused = ["dispatch.example.com", "ftp://example.com", "https://example.com/x", "https://u:p@example.com"];
    for text in refused.into_iter().chain(["https://example.com?x", "https://example.com/#x", "https://", "//x", " "]) {
        let problem = public(text).unwrap_err().to_string();
        assert!(problem.contains("http.public_url") && problem.contains("without a path"), "{text}: {problem}");
    }
}

#[test]
fn producer_may_have_a_right_without_a_webhook() {
    let config = with_file("[producers.fleet]\ndriver_sign_in = true").unwrap();
    assert!(!config.producers["fleet"].has_webhook() && config.declared_endpoints().is_empty());
    let both = "[producers.fleet]\ndriver_sign_in = true\nurl = \"https://x.example.com\"";
    for (text, problem) in [("[producers.fleet]", "producers.fleet.events"), (both, "producers.fleet.events")] {
        assert!(error(text).contains(problem), "{text}: {}", error(text));
    }
    assert!(error("[console]\npath = \"/driver\"").contains("/driver"));
}

#[test]
fn numbers_and_switches_may_be_texts() {
    let env = [
        ("DISPATCHQ_HTTP__MAX_CONNECTIONS", "20"),
        ("DISPATCHQ_CONSOLE__ENABLED", "off"),
        ("DISPATCHQ_DISPATCH__RADIUS_M", "1500"),
        ("DISPATCHQ_WORKER__NAME", "7"),
        ("DISPATCHQ_PARTNERS__BBD__URL", "https://p.example.com"),
        ("DISPATCHQ_PARTNERS__BBD__API_KEY", "12345"),
        ("DISPATCHQ_PARTNERS__BBD__RATE_PER_S", "7"),
    ];
    let config = Config::from_sources(None, variables(&env)).unwrap();
    assert_eq!((config.http.max_connections, config.console.enabled, config.worker.name.as_str()), (20, false, "7"));
    assert!((config.dispatch.radius_m - 1500.0).abs() < f64::EPSILON);
    assert_eq!((config.partners["bbd"].api_key.as_str(), config.partners["bbd"].rate_per_s), ("12345", 7));
    assert_eq!(with_file("[worker]\nname = 7").unwrap().worker.name, "7");
}

// Rule F31: The configuration check parses all addresses, names and durations that are parsed at startup.
// Rule F32: Parameters of a Postgres address that have no effect are refused by name, and no error shows their value.
#[test]
fn config_check_parses_addresses_and_names() {
    for url in [
        "mysql://h/db",
        "jdbc:postgresql://h/db",
        "12345",
        "",
        "postgres://h/db?sslmode=bogus",
        "postgres://h/db?sslpassword=hunter2e",
        "postgres://h/db?SSLMODE=require",
        "postgres://h/db?port=hunter2e",
        "postgres://u:a#hunter2e@h/db",
        "postgres://a,b/db",
        "postgres://h/db?sslrootcert=/no/such/hunter2e",
        "postgres://h:99999/db",
    ] {
        for setting in ["url", "maintenance_url"] {
            if (setting, url) == ("maintenance_url", "") {
                continue;
            }
            let told = error(&format!("[database]\n{setting} = \"{url}\""));
            assert!(
                told.starts_with(&format!("database.{setting} must ")) && !told.contains("hunter2e"),
                "{url}: {told}"
            );
        }
    }
    assert!(
        error("[database]\nurl = \"postgres://h/db?sslpassword=x\"")
            .contains("'sslpassword'; known are application_name")
    );
    for good in [
        "postgres://u:p@h:5433/db?sslmode=verify-full",
        "postgresql:///db?host=/run/postgresql",
        "postgres://h?options[jit]=off",
    ] {
        with_file(&format!("[database]\nurl = \"{good}\"")).unwrap();
    }
    for (table, setting) in [("http", "bind"), ("http", "admin_bind"), ("console", "bind"), ("worker", "admin_bind")] {
        for bind in [
            "localhost",
            ":8080",
            "127.0.0.1:",
            "127.0.0.1:70000",
            "http://127.0.0.1:80",
            "::1:80",
            "[::x]:80",
            "h:+80",
            "a b:80",
        ] {
            let told = error(&format!("[{table}]\n{setting} = \"{bind}\""));
            assert!(told.contains(&format!("{table}.{setting} must be HOST:PORT")), "{bind}: {told}");
        }
        for bind in ["0.0.0.0:0", "[::1]:8080", "localhost:80"] {
            with_file(&format!("[{table}]\n{setting} = \"{bind}\"")).unwrap();
        }
    }
    assert!(error("[http]\nbind = \"\"").contains("http.bind must be HOST:PORT"));
    for name in ["\"\"".to_owned(), "R".repeat(65), "ride".to_owned()] {
        assert!(
            error(&format!("[service_types.{name}]\nattempt = \"1s\"")).contains("names are 1 to 64 capital letters"),
            "{name}"
        );
    }
    assert!(error("[dispatch]\nattempt = \"2M\"").contains("write \"2m\" for minutes"));
}

// Rule F27: A trusted network written as IPv6-mapped IPv4 contains the IPv4 addresses that it names.
#[test]
fn mapped_networks_become_ipv4() {
    let networks = |list: &str| {
        with_file(&format!("[http]\ntrusted_proxies = [{list}]")).unwrap().http.trusted_networks().unwrap()
    };
    let shown = |list: &str| networks(list).iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(
        shown("\"::ffff:127.0.0.0/104\", \"::ffff:10.0.0.7\", \"2001:db8::/32\", \"10.0.0.0/8\", \"::/0\""),
        ["127.0.0.0/8", "10.0.0.7/32", "2001:db8::/32", "10.0.0.0/8", "::/0"]
    );
}

// Rule F32: No address is shown with a password, a query, or the path of a web address.
#[test]
fn shown_addresses_hide_secret_parts() {
    let config = with_file(
        "[database]\nurl = \"postgres://u:hunter2@h/db?options=hunter2\"\nmaintenance_url = \"postgres://o:hunter2@h/db?password=hunter2\"\n\
         [redis]\nurl = \"redis://:hunter2@h:1\"\n[traces]\nendpoint = \"https://h/v1/hunter2?key=hunter2\"\n\
         [partners.bbd]\nurl = \"https://h/hunter2\"\n[payments]\nurl = \"https://h/hunter2\"\n\
         [channels.a]\ntype = \"slack\"\nurl = \"https://h/hunter2\"\n\
         [channels.b]\ntype = \"webhook\"\nurl = \"https://h/?x=hunter2\"\nsecret = \"whsec_c2VjcmV0SECRETc2VjcmV0SECRETc2Vj\"",
    )
    .unwrap();
    let shown = serde_json::to_string(&config.without_secrets()).unwrap();
    assert!(
        !shown.contains("hunter2") && shown.contains("https://h/***") && shown.contains("postgres://u:***@h/db"),
        "{shown}"
    );
    for (url, expected) in [
        ("https://hunter2@h:8443/a?b#c", "https://h:8443/***"),
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080/"),
        ("hunter2", "(not a URL)"),
    ] {
        assert_eq!(without_password(url), expected);
    }
}

// Rule F31: Each ignored variable that looks like a setting is named, with the name that it should have.
#[test]
fn ignored_variables_suggest_the_setting() {
    let sections = DEFAULTS.parse::<toml::Table>().unwrap();
    for section in sections.keys() {
        let name = format!("DISPATCHQ_{}_URL", section.to_uppercase());
        let config = Config::from_sources(None, variables(&[(name.as_str(), "x")])).unwrap();
        let told = config.describe_ignored_variables();
        assert_eq!(told, [format!("{name} is ignored: write DISPATCHQ_{}__URL", section.to_uppercase())]);
    }
}
