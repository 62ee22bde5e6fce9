//! Rules between settings, and rules for names. Rules for single values are declared with the values.

use std::time::Duration;

use chrono::Utc;
use garde::{Error, Path, Report, Validate};
use humantime::format_duration;
use model::{
    bounds::{SECOND, YEAR, number_within, time_within},
    distance,
    ids::{PartnerName, ProviderName, ServiceType},
    key_name::KeyName,
    messages::routes::LOG,
    schedule::SchedulePolicy,
};

use super::{Config, TaskSchedule, WaveConfig};
use foundation::config::error::ConfigError;
use model::partner::choice::ListedPartner;

/// Maximum waves of a service type.
const MOST_WAVES: usize = 10;

type CrossRule = fn(&Config, &mut Report);

const CROSS_RULES: [CrossRule; 7] =
    [check_names, check_service_types, check_leads, check_queues, check_scale, check_routes, check_schedules];

/// Rule for the names of a table. The names become part of job ids, metrics and Redis keys.
struct NameRule {
    table: &'static str,
    names: fn(&Config) -> Vec<&str>,
    fits: fn(&str) -> bool,
    cure: &'static str,
}

const NAME_RULES: [NameRule; 5] = [
    NameRule {
        table: "service_types",
        names: |config| config.service_types.keys().map(ServiceType::as_str).collect(),
        fits: |name| {
            (1..=64).contains(&name.len())
                && name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
        },
        cure: "names are 1 to 64 capital letters, digits and '_'; set them in a file, not in the environment",
    },
    NameRule {
        table: "channels",
        names: |config| config.channels.keys().map(String::as_str).collect(),
        fits: |name| {
            let is_letter = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
            (1..=64).contains(&name.len()) && name.bytes().all(is_letter)
        },
        cure: "names are 1 to 64 letters, digits, '_' or '-'",
    },
    NameRule {
        table: "partners",
        names: |config| config.partners.keys().map(PartnerName::as_str).collect(),
        fits: is_company_name,
        cure: "names have 1 to 32 lowercase letters, digits or '_'",
    },
    NameRule {
        table: "providers",
        names: |config| config.providers.keys().map(ProviderName::as_str).collect(),
        fits: is_company_name,
        cure: "names have 1 to 32 lowercase letters, digits or '_'",
    },
    NameRule {
        table: "producers",
        names: |config| config.producers.keys().map(String::as_str).collect(),
        fits: is_key_name,
        cure: "names are those of API keys, as apikey list shows them: normalised (NFKC), without blanks at the ends",
    },
];

/// Returns whether a key stores this name unchanged. Orders belong to a name in this form.
fn is_key_name(name: &str) -> bool {
    KeyName::parse(name).is_ok_and(|key| key.as_str() == name)
}

fn is_company_name(name: &str) -> bool {
    let is_letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    (1..=32).contains(&name.len()) && name.bytes().all(is_letter)
}

impl Config {
    /// Checks all rules, and returns all problems at once.
    pub(super) fn check_settings(&self) -> Result<(), ConfigError> {
        let mut report = Report::new();
        self.validate_into(&(), &mut Path::empty, &mut report);
        for check_rule in CROSS_RULES {
            check_rule(self, &mut report);
        }
        let mut problems: Vec<_> = report.into_inner().into_iter().map(ConfigError::from).collect();
        problems.extend(self.redis.to_store_config().err());
        problems.extend(self.database.check_addresses().err().into_iter().flat_map(ConfigError::into_problems));
        ConfigError::refuse_problems(problems)
    }
}

fn check_names(config: &Config, report: &mut Report) {
    for rule in NAME_RULES {
        for name in (rule.names)(config).into_iter().filter(|name| !(rule.fits)(name)) {
            report.append(Path::new(rule.table).join(name), Error::new(rule.cure));
        }
    }
}

fn check_service_types(config: &Config, report: &mut Report) {
    for (name, own) in &config.service_types {
        let path = Path::new("service_types").join(name);
        if own.retry.as_ref().unwrap_or(&config.dispatch.retry).is_empty() {
            report.append(path.clone(), Error::new("retry needs at least one duration"));
        }
        let listed = own.partners.iter().flatten().map(|listed| &listed.name);
        for partner in own.partner.iter().chain(listed).filter(|partner| !config.partners.contains_key(*partner)) {
            report.append(path.clone(), Error::new(format!("no partner '{partner}'; add [partners.{partner}]")));
        }
        if let Some(waves) = &own.waves {
            let attempt = own.attempt.unwrap_or(config.dispatch.attempt);
            let replaced = [("ask_at_once", own.ask_at_once.is_some()), ("radius_m", own.radius_m.is_some())];
            check_waves(waves, replaced, attempt, &path.join("waves"), report);
        }
        if let Some(listed) = &own.partners {
            check_listed_partners(own.partner.is_some(), listed, &path.join("partners"), report);
        }
    }
}

/// Checks the waves of a service type. `replaced` are the settings that waves replace, and whether it sets them.
fn check_waves(waves: &[WaveConfig], replaced: [(&str, bool); 2], attempt: Duration, path: &Path, report: &mut Report) {
    let mut refuse = |problem: String| report.append(path.clone(), Error::new(problem));
    for (name, _) in replaced.into_iter().filter(|(_, is_set)| *is_set) {
        refuse(format!("set either {name} or waves, not both"));
    }
    if waves.is_empty() {
        refuse("is empty: name waves, or leave it out".to_owned());
    }
    if waves.len() > MOST_WAVES {
        refuse(format!("has {} waves; {MOST_WAVES} is the most", waves.len()));
    }
    for (n, pair) in (2..).zip(waves.windows(2)) {
        if pair[1].within < pair[0].within {
            let [narrow, wide] = [pair[1].within, pair[0].within].map(distance::show_metres);
            refuse(format!(
                "wave {n} is within {narrow}, and the wave before it within {wide}: a circle may not shrink"
            ));
        }
    }
    for (n, wave) in (1..).zip(waves) {
        match wave.lasts {
            None if n < waves.len() => refuse(format!("wave {n} needs `for`; only the last wave may omit it")),
            Some(lasts) if lasts.is_zero() => refuse(format!("`for` of wave {n} must be more than 0s")),
            _ => {}
        }
    }
    let total = waves.iter().filter_map(|wave| wave.lasts).fold(Duration::ZERO, Duration::saturating_add);
    if total > attempt {
        let [total, attempt] = [total, attempt].map(format_duration);
        refuse(format!("`for` adds up to {total}, more than the attempt ({attempt})"));
    }
}

/// A warning before the start of dispatch would be sent for every scheduled order.
fn check_leads(config: &Config, report: &mut Report) {
    for name in config.service_types.keys() {
        let SchedulePolicy { lead, warn_before, .. } = config.schedule_policy(name);
        if lead < warn_before {
            let (lead, warn_before) = (humantime::format_duration(lead), humantime::format_duration(warn_before));
            let problem = format!(
                "lead is {lead}, less than dispatch.warn_before ({warn_before}): dispatchers would be warned of every \
                 scheduled order before its dispatch starts"
            );
            report.append(Path::new("service_types").join(name), Error::new(problem));
        }
    }
}

fn check_listed_partners(has_partner: bool, listed: &[ListedPartner], path: &Path, report: &mut Report) {
    let mut refuse = |problem: String| report.append(path.clone(), Error::new(problem));
    if has_partner {
        refuse("set either partner or partners, not both".to_owned());
    }
    if listed.is_empty() {
        refuse("is empty: name partners, or leave it out for your own fleet".to_owned());
    }
    let shares = listed.iter().filter(|partner| partner.share.is_some()).count();
    if shares > 0 && shares < listed.len() {
        refuse("give each a share, or none for an order of preference".to_owned());
    }
    for (n, partner) in listed.iter().enumerate() {
        if listed.iter().take(n).any(|before| before.name == partner.name) {
            refuse(format!("names '{}' twice", partner.name));
        }
    }
}

fn check_queues(config: &Config, report: &mut Report) {
    let path = Path::new("worker").join("concurrency");
    for (queue, places) in &config.worker.concurrency {
        if !jobs::queues::ALL.contains(&queue.as_str()) {
            let queues = jobs::queues::ALL.join(", ");
            report.append(path.clone(), Error::new(format!("no queue '{queue}'; queues are {queues}")));
        }
        append_refusal(report, path.join(queue), number_within(1.0..=100_000.0)(places, &()));
    }
}

fn check_scale(config: &Config, report: &mut Report) {
    if config.scale.min > config.scale.max {
        report.append(Path::new("scale").join("min"), Error::new("is more than scale.max"));
    }
}

fn check_routes(config: &Config, report: &mut Report) {
    let general =
        config.notifications.named_routes().map(|(name, route)| (Path::new("notifications").join(name), route));
    let own = config.service_types.iter().filter_map(|(name, own)| {
        Some((Path::new("service_types").join(name).join("driver_channels"), own.driver_channels.as_ref()?))
    });
    for (path, route) in general.into_iter().chain(own) {
        for name in route.iter().filter(|name| *name != LOG && !config.channels.contains_key(*name)) {
            let problem = format!("no channel '{name}'; add [channels.{name}] or use \"log\"");
            report.append(path.clone(), Error::new(problem));
        }
    }
}

fn check_schedules(config: &Config, report: &mut Report) {
    for (task, schedule) in &config.schedules {
        let path = Path::new("schedules").join(task.name());
        match schedule {
            TaskSchedule::Every(interval) => {
                append_refusal(report, path.join("every"), time_within(SECOND..=YEAR)(interval, &()));
            }
            TaskSchedule::Cron(_) => {
                let next = schedule.next_after(Utc::now());
                append_refusal(report, path, next.map(drop).map_err(Error::new));
            }
        }
    }
}

fn append_refusal(report: &mut Report, path: Path, checked: garde::Result) {
    if let Err(error) = checked {
        report.append(path, error);
    }
}
