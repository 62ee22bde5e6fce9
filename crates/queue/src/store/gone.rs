//! Freeing the slots of a process that has ended.

use std::collections::HashMap;

use super::{bounds::BATCH, client::Store, error::StoreError, slots::ReleaseVerdict};

impl Store {
    /// Frees the slots of a process: those given by its takes, whose tokens start with `boot`, and those it asked for
    /// under `name`. Returns their number.
    pub async fn free_slots_of(&self, boot: &str, name: &str) -> Result<usize, StoreError> {
        // The hash has at most as many fields as slots may be open. The holder is the last word, as slots.lua writes
        // it.
        let mut read = redis::cmd("HGETALL");
        read.arg(self.keys().slot_holds());
        let holds: HashMap<String, String> = self.run_command("slots that are held", &read).await?;
        let of_process = |(id, hold): (String, String)| {
            let holder = hold.rsplit(' ').next()?;
            let is_its = holder.rsplit_once(':').is_some_and(|(giver, _)| giver == boot)
                || holder.split_once('.').is_some_and(|(asker, _)| asker == name);
            is_its.then(|| (id, holder.to_owned()))
        };
        let held: Vec<(String, String)> = holds.into_iter().filter_map(of_process).collect();
        let mut freed = 0;
        for batch in held.chunks(BATCH) {
            let holders = batch.iter().map(|(id, holder)| (id.as_str(), holder.as_str()));
            let verdicts = self.release_held(holders).await?;
            freed += verdicts.iter().filter(|verdict| **verdict == ReleaseVerdict::Freed).count();
        }
        Ok(freed)
    }
}
