//! What holds of slots after every step, read from Redis alone: the reference may share a mistake with the scripts.

use std::collections::BTreeMap;

use super::{reference::Image, slot_steps::SlotStep, steps::Step};

/// A record as Redis holds it: of a parked job, or of one with slots.
struct Record<'a> {
    group: &'a str,
    own: &'a str,
    number: u64,
    /// The holder, or the own name that a parked job waits for.
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

/// Compares Redis before and after one step. `open`: slots may be handed out.
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

/// How often something happened: a random test that meets nothing proves nothing.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SlotCounts {
    pub(super) granted: usize,
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
        self.handed += other.handed;
        self.lapsed += other.lapsed;
        self.gave_place_up += other.gave_place_up;
        self.behind_own += other.behind_own;
        self.taken += other.taken;
        self.suspects += other.suspects;
    }
}
