//! The reference in Redis' format.

use super::{Image, Reference, State};

impl Reference {
    /// Returns the expected content of Redis.
    pub(in crate::model) fn image(&self) -> Image {
        let mut image = Image::new();
        let mut put = |key: String, member: &str, value: String| {
            image.entry(format!("{{dq:0}}:{key}")).or_default().insert(member.to_owned(), value);
        };
        for (id, job) in &self.jobs {
            let alive = !matches!(job.state, State::Dead { .. });
            match &job.state {
                State::Due { at } => put(format!("due:{}", job.queue), id, at.to_string()),
                State::Suspect { at } => put(format!("suspects:{}", job.queue), id, at.to_string()),
                State::Parked { since } => put(format!("parked:{}", job.queue), id, since.to_string()),
                State::Leased { until, token, due, again } => {
                    put(format!("leased:{}", job.queue), id, until.to_string());
                    let again = again.map_or("-".to_owned(), |again| again.to_string());
                    put("leases".to_owned(), id, format!("{token} {due} {again}"));
                }
                State::Dead { at, record } => {
                    put(format!("dead:{}", job.queue), id, at.to_string());
                    put("dead".to_owned(), id, record.clone());
                }
            }
            if let Some(envelope) = job.envelope.as_ref().filter(|_| alive) {
                put("jobs".to_owned(), id, envelope.clone());
            }
            if alive && job.has_tries() {
                put("tries".to_owned(), id, format!("{} {}", job.failed, job.lost));
            }
        }
        for queue in &self.paused {
            put("paused".to_owned(), queue, String::new());
        }
        if let Some((boot, until)) = &self.turn {
            put("suspect_turn".to_owned(), "boot", boot.clone());
            put("suspect_turn".to_owned(), "until", until.to_string());
        }
        self.slots.draw(&self.all_suspects(), put);
        image
    }
}
