//! Whether an area takes one more order. Pure.
//!
//! The order of the questions: does the flag hold for this request at all; is the area disabled; has a person decided; is
//! there room; is there room for a loyal customer. Source: the requirement on server busy, 4.5.5.

use chrono::{DateTime, TimeDelta, Utc};

use super::limits::{Flag, Forced, Limits, Loyalty, Override};

/// Who asks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Asker<'a> {
    pub channel: Option<&'a str>,
    pub user: Option<&'a str>,
    /// `None`: none, or an unknown one.
    pub loyalty: Option<Loyalty>,
}

/// How an area stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Standing {
    pub waiting: i64,
    /// When it became full, while it is still busy.
    pub busy_since: Option<DateTime<Utc>>,
}

/// What holds for one area and service type.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Terms<'a> {
    pub area: &'a str,
    pub limits: &'a Limits,
    pub forced: Option<&'a Override>,
    pub flag: &'a Flag,
}

/// What the area's terms say to an asker before anything is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// Everybody is taken, and counted.
    Open,
    /// Every request is refused.
    Closed(Refused),
    /// The count decides: while fewer wait than `threshold`, or for this asker than `with_bypass`.
    Counted { threshold: i64, with_bypass: Option<i64> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    Disabled,
    Forced,
    Full,
}

/// Whether one more is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Taken,
    /// Past the threshold, for loyalty.
    Bypassed,
    Refused(Refused),
}

/// A gate, and whether it only counts what it would have done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    pub gate: Gate,
    pub shadow: bool,
}

/// What holds for this asker.
pub fn rule(terms: Terms<'_>, asker: Asker<'_>, now: DateTime<Utc>) -> Rule {
    if !terms.flag.holds(terms.area, asker.channel, asker.user) {
        return Rule { gate: Gate::Open, shadow: false };
    }
    let forced = terms.forced.filter(|forced| forced.holds(now)).map(|forced| forced.status);
    let gate = match forced {
        _ if !terms.limits.enabled => Gate::Closed(Refused::Disabled),
        Some(Forced::ForceBusy) => Gate::Closed(Refused::Forced),
        Some(Forced::ForceAvailable) => Gate::Open,
        None => Gate::Counted {
            threshold: terms.limits.max_waiting,
            with_bypass: terms.limits.may_bypass(asker.loyalty).then(|| terms.limits.max_with_bypass()),
        },
    };
    Rule { gate, shadow: terms.flag.shadow_mode }
}

/// What a gate says to one more, as the area stands.
pub fn verdict(gate: Gate, limits: &Limits, standing: Standing, now: DateTime<Utc>) -> Verdict {
    match gate {
        Gate::Open => Verdict::Taken,
        Gate::Closed(why) => Verdict::Refused(why),
        Gate::Counted { threshold, .. } if standing.waiting < threshold && !is_cooling(limits, standing, now) => {
            Verdict::Taken
        }
        Gate::Counted { with_bypass: Some(most), .. } if standing.waiting < most => Verdict::Bypassed,
        Gate::Counted { .. } => Verdict::Refused(Refused::Full),
    }
}

/// Once full, an area stays busy for its cooldown at least, and until few enough wait: it does not flap.
pub fn is_cooling(limits: &Limits, standing: Standing, now: DateTime<Utc>) -> bool {
    standing.busy_since.is_some_and(|since| {
        let cooldown = TimeDelta::from_std(limits.cooldown).unwrap_or(TimeDelta::MAX);
        now < since + cooldown || standing.waiting >= limits.low_water()
    })
}

#[cfg(test)]
mod tests {
    use super::{super::limits::fixture::limits, *};

    fn now() -> DateTime<Utc> {
        DateTime::from_timestamp(1_800_000_000, 0).unwrap()
    }

    fn on() -> Flag {
        Flag { enabled: true, ..Flag::default() }
    }

    fn forced(status: Forced, expires_in: Option<i64>) -> Override {
        Override {
            area_id: "JKT".to_owned(),
            status,
            reason: "Banjir di area".to_owned(),
            expires_at: expires_in.map(|secs| now() + TimeDelta::seconds(secs)),
            actor: "operator:x".to_owned(),
        }
    }

    fn decide(
        limits: &Limits,
        over: Option<&Override>,
        flag: &Flag,
        loyalty: Option<Loyalty>,
        waiting: i64,
        busy_for: Option<i64>,
    ) -> (Verdict, bool) {
        let asker = Asker { loyalty, ..Asker::default() };
        let rule = rule(Terms { area: "JKT", limits, forced: over, flag }, asker, now());
        let standing = Standing { waiting, busy_since: busy_for.map(|secs| now() - TimeDelta::seconds(secs)) };
        (verdict(rule.gate, limits, standing, now()), rule.shadow)
    }

    #[test]
    fn every_branch_of_the_requirement() {
        use Verdict::{Bypassed, Taken};
        let full = Verdict::Refused(Refused::Full);
        let (elite, voyager) = (Some(Loyalty::Elite), Some(Loyalty::Voyager));
        let (traveler, explorer) = (Some(Loyalty::Traveler), Some(Loyalty::Explorer));
        for (waiting, loyalty, expected) in [
            (0, None, Taken),
            (45, elite, Taken),
            (99, None, Taken),
            (100, None, full),
            (105, None, full),
            (100, traveler, full),
            (100, explorer, full),
            (100, voyager, Bypassed),
            (105, voyager, Bypassed),
            (119, elite, Bypassed),
            (120, elite, full),
            (125, voyager, full),
        ] {
            let (verdict, _) = decide(&limits(), None, &on(), loyalty, waiting, None);
            assert_eq!(verdict, expected, "{waiting} waiting, {loyalty:?}");
        }
    }

    #[test]
    fn without_bypass_nobody_passes_and_without_the_flag_everybody() {
        let strict = Limits { bypass_enabled: false, ..limits() };
        let (elite, full) = (Some(Loyalty::Elite), Verdict::Refused(Refused::Full));
        assert_eq!(decide(&strict, None, &on(), elite, 100, None).0, full);
        assert_eq!(decide(&limits(), None, &Flag::default(), None, 1_000, None).0, Verdict::Taken);
        let closed = Limits { enabled: false, ..limits() };
        assert_eq!(decide(&closed, None, &Flag::default(), None, 0, None).0, Verdict::Taken);
    }

    #[test]
    fn shadow_mode_says_so_and_decides_the_same() {
        let shadow = Flag { shadow_mode: true, ..on() };
        let full = Verdict::Refused(Refused::Full);
        assert_eq!(decide(&limits(), None, &shadow, None, 100, None), (full, true));
        assert_eq!(decide(&limits(), None, &on(), None, 100, None), (full, false));
    }

    #[test]
    fn a_person_decides_for_as_long_as_said_and_a_disabled_area_stays_so() {
        let busy = forced(Forced::ForceBusy, Some(60));
        assert_eq!(decide(&limits(), Some(&busy), &on(), None, 0, None).0, Verdict::Refused(Refused::Forced));
        let elite = Some(Loyalty::Elite);
        assert_eq!(decide(&limits(), Some(&busy), &on(), elite, 0, None).0, Verdict::Refused(Refused::Forced));
        let over = forced(Forced::ForceBusy, Some(0));
        assert_eq!(decide(&limits(), Some(&over), &on(), None, 0, None).0, Verdict::Taken);
        let free = forced(Forced::ForceAvailable, None);
        assert_eq!(decide(&limits(), Some(&free), &on(), None, 500, None).0, Verdict::Taken);
        let closed = Limits { enabled: false, ..limits() };
        assert_eq!(decide(&closed, Some(&free), &on(), None, 0, None).0, Verdict::Refused(Refused::Disabled));
    }

    #[test]
    fn an_area_that_was_full_cools_down_first_and_empties_to_the_low_water_mark() {
        let full = Verdict::Refused(Refused::Full);
        for (waiting, busy_for, expected) in [
            (50, Some(59), full),
            (50, Some(60), Verdict::Taken),
            (90, Some(600), full),
            (89, Some(600), Verdict::Taken),
            (89, None, Verdict::Taken),
        ] {
            let (verdict, _) = decide(&limits(), None, &on(), None, waiting, busy_for);
            assert_eq!(verdict, expected, "{waiting} waiting, busy for {busy_for:?}");
        }
        let elite = Some(Loyalty::Elite);
        assert_eq!(decide(&limits(), None, &on(), elite, 50, Some(1)).0, Verdict::Bypassed);
    }
}
