//! Walks the dead letters of one queue or of all, page by page. No call to Redis looks at more than 500 of them.

use std::{fmt, str::FromStr, time::Duration};

use foundation::{core::Core, error::ServiceError};
use queue::{
    JobId,
    store::{DeadCursor, DeadEntry, DeadFilter},
};

/// Which dead letters. By default all.
#[derive(Debug, Clone, Default)]
pub struct DeadSelection {
    pub queue: Option<&'static str>,
    /// Only those whose error contains this text.
    pub error: Option<String>,
    /// Only those dead for at least this long.
    pub older_than: Duration,
}

/// A place in the list over all queues: behind this dead letter. As text `queue:died_ms:id`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadListPlace {
    queue: &'static str,
    cursor: DeadCursor,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no cursor: expected the one that was printed with the page before")]
pub struct InvalidPlace(String);

impl fmt::Display for DeadListPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.queue, self.cursor)
    }
}

impl FromStr for DeadListPlace {
    type Err = InvalidPlace;

    fn from_str(text: &str) -> Result<Self, InvalidPlace> {
        let place = text.split_once(':').and_then(|(queue, cursor)| {
            let queue = jobs::queues::ALL.into_iter().find(|known| *known == queue)?;
            Some(Self { queue, cursor: cursor.parse().ok()? })
        });
        place.ok_or_else(|| InvalidPlace(text.to_owned()))
    }
}

/// Queue by queue, in each the longest dead first.
#[derive(Debug)]
pub struct DeadWalk {
    filter: DeadFilter,
    /// The queue being walked is the last.
    queues: Vec<&'static str>,
    cursor: Option<DeadCursor>,
}

impl DeadWalk {
    /// From the beginning, or behind `after`.
    pub fn new(selection: &DeadSelection, after: Option<DeadListPlace>) -> Self {
        let all = jobs::queues::ALL.into_iter().filter(|queue| selection.queue.is_none_or(|only| only == *queue));
        let mut queues: Vec<_> = all.skip_while(|queue| after.as_ref().is_some_and(|p| p.queue != *queue)).collect();
        queues.reverse();
        Self {
            filter: DeadFilter { error: selection.error.clone(), older_than: selection.older_than },
            queues,
            cursor: after.map(|place| place.cursor),
        }
    }

    /// The next dead letters; possibly none of those looked at. `None` at the end.
    pub async fn next_entries(&mut self, core: &Core) -> Result<Option<Vec<DeadEntry>>, ServiceError> {
        let Some(queue) = self.queues.last() else { return Ok(None) };
        let page = core.queue().list_dead(queue, &self.filter, self.cursor.as_ref()).await?;
        self.cursor = page.next;
        if self.cursor.is_none() {
            self.queues.pop();
        }
        Ok(Some(page.entries))
    }
}

/// A page for people.
#[derive(Debug, Clone, PartialEq)]
pub struct DeadLetterPage {
    pub entries: Vec<DeadEntry>,
    /// Where to go on; `None`: that was all.
    pub next: Option<DeadListPlace>,
}

/// The first `limit` behind `after`.
pub async fn list_page(
    core: &Core,
    selection: &DeadSelection,
    after: Option<DeadListPlace>,
    limit: usize,
) -> Result<DeadLetterPage, ServiceError> {
    let mut walk = DeadWalk::new(selection, after);
    let mut entries: Vec<DeadEntry> = Vec::new();
    while entries.len() <= limit {
        let Some(more) = walk.next_entries(core).await? else { break };
        entries.extend(more);
    }
    let more = entries.len() > limit;
    entries.truncate(limit);
    let next = entries.last().filter(|_| more).and_then(|last| {
        let queue = jobs::queues::ALL.into_iter().find(|queue| *queue == last.record.queue)?;
        Some(DeadListPlace { queue, cursor: last.cursor() })
    });
    Ok(DeadLetterPage { entries, next })
}

/// The ids of all. What dies later is not among them, so that dealing with them comes to an end.
pub async fn list_ids(core: &Core, selection: &DeadSelection) -> Result<Vec<JobId>, ServiceError> {
    list_first_ids(core, selection, usize::MAX).await
}

/// As [`list_ids`], but goes no further than the page that has the last of so many.
pub async fn list_first_ids(core: &Core, selection: &DeadSelection, most: usize) -> Result<Vec<JobId>, ServiceError> {
    let mut walk = DeadWalk::new(selection, None);
    let mut ids = Vec::new();
    while ids.len() < most
        && let Some(entries) = walk.next_entries(core).await?
    {
        ids.extend(entries.into_iter().filter_map(|entry| JobId::parse(entry.id).ok()));
    }
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_survives_being_written_down() {
        let text = "notify-queue:17:notify:ORD-1:3";
        assert_eq!(text.parse::<DeadListPlace>().unwrap().to_string(), text);
        for bad in ["", "17", "mail-queue:17:a:b", "notify-queue:x:a:b", "notify-queue:17"] {
            assert!(bad.parse::<DeadListPlace>().is_err(), "{bad}");
        }
    }
}
