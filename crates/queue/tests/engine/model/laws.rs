//! Invariants of slots after every step and of every take. They read only Redis, because the reference may share a
//! mistake with the scripts.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    reference::{Image, Took},
    slot_steps::SlotStep,
    steps::Step,
};
use queue::store::Takeable;

/// Record in Redis of a parked job or of a job with slots.
struct Record<'a> {
    group: &'a str,
    own: &'a str,
    number: u64,
    /// Holder, or the own name that a parked job waits for.
    last: &'a str,
}

struct Picture<'a> {
    parked: BTreeMap<&'a str, Record<'a>>,
    held: BTreeMap<&'a str, Record<'a>>,
    limits: BTreeMap<&'a str, usize>,
}

fn records<'a>(image: &'a Image, key: &str) -> BTreeMap<&'a str, Record<'a>> {
    let parse = |(id, text): (&'a String, &'a String)| {
        let words: Vec<&str> = text.split(' ').collect();
        let record = Record { group: words[1], own: words[2], number: words[4].parse().unwrap(), last: words[7] };
        (id.as_str(), record)
    };
    image.get(key).into_iter().flatten().map(parse).collect()
}

impl<'a> Picture<'a> {
    fn new(image: &'a Image) -> Self {
        let limits = image.get("{dq:0}:slot_limits").into_iter().flatten();
        Self {
            parked: records(image, "{dq:0}:parked"),
            held: records(image, "{dq:0}:slot_holds"),
            limits: limits.map(|(name, most)| (name.as_str(), most.parse().unwrap())).collect(),
        }
    }

    fn used(&self, group: &str) -> usize {
        self.held.values().filter(|held| held.group == group).count()
    }

    fn limit(&self, group: &str) -> usize {
        self.limits.get(format!("group:{group}").as_str()).copied().unwrap_or(0)
    }

    fn all(&self) -> usize {
        self.limits.get("all").copied().unwrap_or(0)
    }
}

/// Compares Redis before and after one step. `open` means that slots may be handed out.
pub(super) fn check(before: &Image, after: &Image, open: bool, step: &Step) -> Result<(), String> {
    let (before, after) = (Picture::new(before), Picture::new(after));
    let restores = matches!(step, Step::Slots(SlotStep::Rebuild { .. }));
    for (id, held) in &after.held {
        let had = before.held.get(id).is_some_and(|had| had.last == held.last || had.last == "-");
        if had || restores {
            continue;
        }
        if after.held.len() > after.all() || after.used(held.group) > after.limit(held.group) {
            return Err(format!("{id} got a slot too many"));
        }
        if after
            .held
            .iter()
            .any(|(other, held_by)| other != id && held_by.own == held.own && before.held.contains_key(other))
        {
            return Err(format!("{id} got the slot {} of another", held.own));
        }
        let passed = after.parked.iter().find(|(other, parked)| {
            parked.group == held.group
                && parked.last == "-"
                && before.parked.contains_key(*other)
                && (parked.number < held.number || !before.parked.contains_key(id) && held.last != "-")
        });
        if let Some((other, _)) = passed {
            return Err(format!("{id} passed {other} in the line of {}", held.group));
        }
    }
    let idle = after.parked.iter().find(|(id, parked)| {
        after.held.len() < after.all()
            && after.used(parked.group) < after.limit(parked.group)
            && !after.held.contains_key(*id)
            && after.held.values().all(|held| held.own != parked.own)
    });
    match idle {
        Some((id, _)) if open => Err(format!("{id} waits beside free slots")),
        _ => Ok(()),
    }
}

/// Counts of events, to prove that the random steps reach them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SlotCounts {
    pub(super) granted: usize,
    /// Due jobs that got their stated slots, and those that were parked.
    pub(super) sought: usize,
    pub(super) parked_due: usize,
    pub(super) handed: usize,
    pub(super) lapsed: usize,
    pub(super) gave_place_up: usize,
    pub(super) behind_own: usize,
    pub(super) taken: usize,
    /// Suspects that were handed slots.
    pub(super) suspects: usize,
}

impl SlotCounts {
    pub(super) fn add(&mut self, other: Self) {
        self.granted += other.granted;
        self.sought += other.sought;
        self.parked_due += other.parked_due;
        self.handed += other.handed;
        self.lapsed += other.lapsed;
        self.gave_place_up += other.gave_place_up;
        self.behind_own += other.behind_own;
        self.taken += other.taken;
        self.suspects += other.suspects;
    }
}

/// Counts of events with a horizon.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct HorizonCounts {
    /// Takes without epoch and horizon.
    pub(super) refused: usize,
    /// Jobs leased during a rebuild.
    pub(super) leased: usize,
    /// Takes that left a due job because it was beyond the horizon.
    pub(super) held_back: usize,
}

impl HorizonCounts {
    pub(super) fn add(&mut self, other: Self) {
        self.refused += other.refused;
        self.leased += other.leased;
        self.held_back += other.held_back;
    }
}

/// Checks one take against the state of Redis just before it: jobs are leased neither early nor beyond the horizon, and
/// not without epoch and horizon. A job with reserved slots is due at the time of its reservation. So is a job that
/// loses its reservation in this take.
pub(super) fn check_taken(
    takeable: Takeable,
    now: u64,
    reserved: &BTreeSet<String>,
    answer: Option<&Took>,
) -> Result<HorizonCounts, String> {
    let Some(took) = answer else {
        let counts = HorizonCounts { refused: 1, ..HorizonCounts::default() };
        return if takeable == Takeable::Nothing {
            Ok(counts)
        } else {
            Err(format!("nothing was taken: {takeable:?}"))
        };
    };
    let Some(latest) = takeable.latest_due(now) else {
        return Err("jobs were taken without epoch and horizon".to_owned());
    };
    if let Some(job) = took.jobs.iter().find(|job| !job.slots && !reserved.contains(&job.id) && job.due > latest) {
        return Err(format!("{} is due at {} and was leased at {now}: {takeable:?}", job.id, job.due));
    }
    if takeable == Takeable::All {
        return Ok(HorizonCounts::default());
    }
    let is_held_back = latest < now && took.next_due == Some(now + 50);
    Ok(HorizonCounts { refused: 0, leased: took.jobs.len(), held_back: usize::from(is_held_back) })
}
