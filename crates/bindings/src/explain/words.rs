//! Text for the state of a binding and for the actions that a person can take. Pure.

use chrono::{DateTime, SecondsFormat, Utc};
use model::binding::{Binding, BindingPhase, BindingState, CallAction, StopReason};

use super::{BindingAdvice, JobPlace, NextStep, ServerSituation};
use foundation::worker_drains::Unserved;

/// Input of [`explain_state`] and [`advise_operator`].
#[derive(Debug, Clone, Copy)]
pub struct BindingSurroundings<'a> {
    pub binding: &'a Binding,
    pub now: DateTime<Utc>,
    pub next: Option<&'a NextStep>,
    pub server: &'a ServerSituation,
    /// Whether an operator has paused the queue of bindings.
    pub queue_is_paused: bool,
    /// Why no worker takes the jobs of the queue. `None` if a worker does.
    pub unserved: Option<Unserved>,
}

/// Returns what the binding's job will do.
pub fn describe_next(binding: &Binding) -> &'static str {
    match (binding.phase, binding.call_action) {
        (BindingPhase::Idle, _) => "starts the next cycle",
        (BindingPhase::Calling, Some(CallAction::Settle)) => "continues after the open call has ended",
        (BindingPhase::Calling, _) => "repeats the call if it has no answer by then",
        (BindingPhase::Processing, _) => "asks the provider for the state of the transaction",
        (BindingPhase::WaitingOtp, _) if binding.otp_value.is_some() => "sends the OTP",
        (BindingPhase::WaitingOtp, _) => "stops waiting for an OTP",
    }
}

/// Returns the reason for the binding's state.
pub fn explain_state(about: &BindingSurroundings<'_>) -> String {
    let b = about.binding;
    if let Some(at) = b.deleted_at {
        return format!("It was deleted at {}.", clock_time(at));
    }
    let state = match b.state {
        BindingState::Stopped => explain_stop(b),
        BindingState::Running => "It is running cycles.".to_owned(),
        BindingState::Paused => "It is paused: the next cycle starts after it is resumed.".to_owned(),
        BindingState::Stopping => "It stops when its open call has ended.".to_owned(),
    };
    format!("{state} {}", explain_phase(about))
}

fn explain_stop(b: &Binding) -> String {
    match b.reason {
        None => "It was never started.".to_owned(),
        Some(StopReason::ManualStop) => "A person or a program stopped it.".to_owned(),
        Some(StopReason::InsufficientBalanceBeforeStart) => {
            format!("The provider refused to start: the balance of account {} is too low.", b.account_id)
        }
        Some(StopReason::OtpTimeout) => "It stopped because no OTP was submitted in time.".to_owned(),
        Some(StopReason::ServerDisabled) => format!("It stopped because server {} was disabled.", b.server_id),
        Some(StopReason::ServerNotAllowed) => {
            format!(
                "It stopped because the configuration does not allow calls to the address of server {}.",
                b.server_id
            )
        }
        Some(StopReason::TooManyFailures) => {
            format!("It stopped after {} failed transactions in a row.", b.failures)
        }
        Some(StopReason::ProcessingTimeout) => "It stopped because a transaction stayed open for too long.".to_owned(),
    }
}

fn explain_phase(about: &BindingSurroundings<'_>) -> String {
    let b = about.binding;
    let trx = b.trx_id.as_ref().map_or_else(|| "?".to_owned(), ToString::to_string);
    match b.phase {
        BindingPhase::Idle => match b.next_at.filter(|_| b.state == BindingState::Running) {
            Some(at) if at <= about.now => format!("Cycle {} has been due since {}.", b.cycle + 1, clock_time(at)),
            Some(at) => format!("Cycle {} starts at {}.", b.cycle + 1, clock_time(at)),
            None => format!("No transaction is open; cycles so far: {}.", b.cycle),
        },
        BindingPhase::Calling => {
            let action = b.call_action.map_or("?", CallAction::as_str);
            let until = b.call_until.unwrap_or(about.now);
            if until > about.now {
                format!("Call {} ({action} of {trx}) is open until {} at the latest.", b.call_no, clock_time(until))
            } else {
                format!(
                    "Call {} ({action} of {trx}) had time until {} and has no answer.",
                    b.call_no,
                    clock_time(until)
                )
            }
        }
        BindingPhase::Processing => format!(
            "{trx} is PROCESSING and its provider was asked {} times; it becomes UNRESOLVED at {}.",
            b.asks,
            b.processing_deadline.map_or_else(|| "?".to_owned(), clock_time)
        ),
        BindingPhase::WaitingOtp if b.otp_value.is_some() => {
            format!("An OTP for {trx} was submitted and will be sent.")
        }
        BindingPhase::WaitingOtp => format!(
            "{trx} waits for an OTP until {} ({} of {} tried).",
            b.otp_deadline.map_or_else(|| "?".to_owned(), clock_time),
            b.otp_tries,
            b.config.otp_attempts
        ),
    }
}

/// Returns the actions that a person can take.
pub fn advise_operator(about: &BindingSurroundings<'_>) -> Vec<BindingAdvice> {
    let (b, server) = (about.binding, about.server);
    let mut advice = Vec::new();
    let mut say = |text: String, command: Option<String>| advice.push(BindingAdvice { text, command });
    if let Some(next) = about.next {
        match &next.place {
            Some(JobPlace::Dead { error }) => {
                say(format!("{} is dead: {error}", next.job), Some(format!("dispatchq dead show {}", next.job)));
            }
            Some(JobPlace::Missing) => {
                let text = format!("{} is missing; the reconciler enqueues it within seconds, or run it now", next.job);
                say(text, Some("dispatchq reconcile run".to_owned()));
            }
            _ => {}
        }
        if about.queue_is_paused {
            let queue = jobs::queues::BINDING;
            say(format!("{queue} is paused"), Some(format!("dispatchq queue resume {queue}")));
        }
        if let Some(cause) = about.unserved {
            say(cause.describe(jobs::queues::BINDING), Some(cause.remedy().to_owned()));
        }
        if !server.is_configured {
            let provider = &server.provider;
            say(format!("no key for provider {provider} is configured: set [providers.{provider}]"), None);
        }
        if let Some(until) = server.paused_until {
            let text = format!(
                "server {} is not called before {}, after {} failures in a row; calls resume then",
                server.id,
                clock_time(until),
                server.failures
            );
            say(text, Some("dispatchq server list".to_owned()));
        }
    }
    if let Some(problem) = server.address_problem.as_ref().filter(|_| b.deleted_at.is_none()) {
        say(
            format!("server {} cannot be called: {problem}", server.id),
            Some(format!("dispatchq server set {} --url URL", server.id)),
        );
    }
    if !server.enabled && b.deleted_at.is_none() {
        say(
            format!("server {} is disabled", server.id),
            Some(format!("dispatchq server set {} --enabled true", server.id)),
        );
    }
    if b.phase == BindingPhase::WaitingOtp && b.otp_value.is_none() {
        let trx = b.trx_id.as_ref().map_or_else(String::new, ToString::to_string);
        say("submit the OTP".to_owned(), Some(format!("dispatchq binding otp {} --trx {trx}", b.id)));
    }
    if b.unresolved > 0 {
        say(
            format!(
                "{} transactions are UNRESOLVED; the worker keeps asking the provider, or contact the provider",
                b.unresolved
            ),
            Some(format!("dispatchq binding transactions {} --status UNRESOLVED", b.id)),
        );
    }
    match (b.state, b.reason) {
        _ if b.deleted_at.is_some() => {}
        (BindingState::Stopped, Some(StopReason::InsufficientBalanceBeforeStart)) => {
            say(
                "start it after the account is topped up".to_owned(),
                Some(format!("dispatchq binding start {}", b.id)),
            );
        }
        (BindingState::Stopped, _) => {
            say("start it".to_owned(), Some(format!("dispatchq binding start {}", b.id)));
        }
        (BindingState::Paused, _) => {
            say("resume it".to_owned(), Some(format!("dispatchq binding resume {}", b.id)));
        }
        (BindingState::Running | BindingState::Stopping, _) => {}
    }
    advice
}

fn clock_time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
    use model::binding::BindingConfig;

    use super::*;

    fn noon() -> DateTime<Utc> {
        DateTime::from_timestamp(1_800_000_000, 0).unwrap()
    }

    fn row() -> Binding {
        let (server, account) = ("S1".parse().unwrap(), "A-1".parse().unwrap());
        Binding::new_stopped("B".parse().unwrap(), server, account, BindingConfig::default(), noon())
    }

    fn server() -> ServerSituation {
        ServerSituation {
            id: "S1".to_owned(),
            provider: "acme".to_owned(),
            enabled: true,
            is_configured: true,
            address_problem: None,
            max_concurrent: Some(2),
            failures: 0,
            paused_until: None,
            slots: None,
        }
    }

    fn explain(binding: &Binding, server: &ServerSituation, place: Option<JobPlace>) -> (String, Vec<String>) {
        let job = |place| NextStep { job: "cycle:B:1".to_owned(), does: describe_next(binding), at: noon(), place };
        let next = place.map(|place| job(Some(place)));
        let about = BindingSurroundings {
            binding,
            now: noon(),
            next: next.as_ref(),
            server,
            queue_is_paused: false,
            unserved: None,
        };
        (explain_state(&about), advise_operator(&about).into_iter().filter_map(|advice| advice.command).collect())
    }

    #[test]
    fn each_stop_reason_has_its_own_text() {
        let mut said = std::collections::BTreeSet::new();
        for reason in StopReason::ALL.into_iter().map(Some).chain([None]) {
            let (why, commands) = explain(&Binding { reason, ..row() }, &server(), None);
            assert_eq!(commands, ["dispatchq binding start B"], "{reason:?}");
            assert!(said.insert(why), "{reason:?}");
        }
    }

    #[test]
    fn running_binding_needs_commands_only_when_blocked() {
        let running = Binding { state: BindingState::Running, next_at: Some(noon()), ..row() };
        let waiting = || Some(JobPlace::Waiting { due: noon() });
        let (why, commands) = explain(&running, &server(), waiting());
        assert_eq!((why.contains("Cycle 1 has been due since"), commands), (true, Vec::new()), "{why}");

        let away = ServerSituation {
            enabled: false,
            failures: 10,
            paused_until: Some(noon() + TimeDelta::seconds(5)),
            ..server()
        };
        let (_, commands) = explain(&running, &away, Some(JobPlace::Missing));
        let wanted = ["dispatchq reconcile run", "dispatchq server list", "dispatchq server set S1 --enabled true"];
        assert_eq!(commands, wanted);
    }

    #[test]
    fn otp_wait_names_its_transaction() {
        let waits = Binding {
            state: BindingState::Running,
            phase: BindingPhase::WaitingOtp,
            cycle: 3,
            trx_id: Some("B.3".parse().unwrap()),
            otp_deadline: Some(noon() + TimeDelta::seconds(60)),
            unresolved: 1,
            ..row()
        };
        let (why, commands) = explain(&waits, &server(), Some(JobPlace::Waiting { due: noon() }));
        assert!(why.contains("B.3 waits for an OTP until 2027-01-15T08:01:00Z (0 of 3 tried)"), "{why}");
        let wanted = ["dispatchq binding otp B --trx B.3", "dispatchq binding transactions B --status UNRESOLVED"];
        assert_eq!(commands, wanted);
    }

    #[test]
    fn open_call_shows_its_end_time() {
        let calling = |until| Binding {
            state: BindingState::Stopping,
            reason: Some(StopReason::ManualStop),
            phase: BindingPhase::Calling,
            trx_id: Some("B.1".parse().unwrap()),
            call_action: Some(CallAction::Start),
            call_no: 7,
            call_until: Some(until),
            ..row()
        };
        let (why, _) = explain(&calling(noon() + TimeDelta::seconds(5)), &server(), None);
        assert!(why.contains("Call 7 (start of B.1) is open until"), "{why}");
        let (why, _) = explain(&calling(noon() - TimeDelta::seconds(5)), &server(), None);
        assert!(why.contains("has no answer"), "{why}");
    }
}
