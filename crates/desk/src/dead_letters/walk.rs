//! Lists the dead letters of one queue or of all, page by page. Each Redis command reads at most 500 of them.

use std::{fmt, str::FromStr, time::Duration};

use foundation::{core::Core, error::ServiceError};
use queue::{
    JobId,
    store::{DeadCursor, DeadEntry, DeadFilter},
};

/// Selection of dead letters; all by default.
#[derive(Debug, Clone, Default)]
pub struct DeadSelection {
    pub queue: Option<&'static str>,
    /// Text that the error must contain.
    pub error: Option<String>,
    /// Minimum time since the death.
    pub older_than: Duration,
}

/// Position in the list of all queues, after this dead letter. Written as `queue:died_ms:id`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadListPlace {
    queue: &'static str,
    cursor: DeadCursor,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a cursor: use the one from the previous page")]
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

/// Iteration over the queues; in each queue, the longest dead come first.
#[derive(Debug)]
pub struct DeadWalk {
    filter: DeadFilter,
    /// The last element is the current queue.
    queues: Vec<&'static str>,
    cursor: Option<DeadCursor>,
}

impl DeadWalk {
    /// Starts at the first queue, or after `after`.
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

    /// Returns the next dead letters. The list may be empty if none of a page match. Returns `None` at the end.
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

#[derive(Debug, Clone, PartialEq)]
pub struct DeadLetterPage {
    pub entries: Vec<DeadEntry>,
    /// Position of the next page; `None`: this is the last page.
    pub next: Option<DeadListPlace>,
}

/// Returns the first `limit` dead letters after `after`.
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

/// Returns the ids of all dead letters. Jobs that die later are not included, so processing the list ends.
pub async fn list_ids(core: &Core, selection: &DeadSelection) -> Result<Vec<JobId>, ServiceError> {
    list_first_ids(core, selection, usize::MAX).await
}

/// Same as [`list_ids`], but stops after the page that contains the last of `most` ids.
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
    fn dead_list_place_round_trips_as_text() {
        let text = "notify-queue:17:notify:ORD-1:3";
        assert_eq!(text.parse::<DeadListPlace>().unwrap().to_string(), text);
        for bad in ["", "17", "mail-queue:17:a:b", "notify-queue:x:a:b", "notify-queue:17"] {
            assert!(bad.parse::<DeadListPlace>().is_err(), "{bad}");
        }
    }
}
