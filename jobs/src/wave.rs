//! Starts a wave of a running attempt: asks further drivers in a circle that is at least as wide.

use std::str::FromStr;

use job_contract::{DecodeError, Job, JobId};

use crate::{OrderId, queues};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartWave {
    pub order: OrderId,
    pub attempt: u32,
    /// Number of the wave that starts, from 2. The first wave starts with its attempt.
    pub wave: u32,
}

impl Job for StartWave {
    const KIND: &'static str = "wave";
    const QUEUE: &'static str = queues::DISPATCH_TIMEOUT;

    fn id(&self) -> JobId {
        self.order.numbered_job_id(Self::KIND, format_args!("{}:{}", self.attempt, self.wave))
    }

    fn decode(id: &JobId, _payload: Option<serde_json::Value>) -> Result<Self, DecodeError> {
        let (rest, wave) = id.key().rsplit_once(':').ok_or_else(|| DecodeError::new(id, "no numbers"))?;
        let (order, attempt) = rest.rsplit_once(':').ok_or_else(|| DecodeError::new(id, "no number of the wave"))?;
        let order = order.parse().map_err(|error| DecodeError::new(id, error))?;
        Ok(Self { order, attempt: parse_number(id, attempt)?, wave: parse_number(id, wave)? })
    }
}

fn parse_number(id: &JobId, text: &str) -> Result<u32, DecodeError> {
    u32::from_str(text).map_err(|_| DecodeError::new(id, format!("'{text}' is no number")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_id_contains_attempt_and_wave() {
        let job = StartWave { order: "ORD-1".parse().unwrap(), attempt: 3, wave: 2 };
        assert_eq!(job.id().as_str(), "wave:ORD-1:3:2");
        assert_eq!(StartWave::decode(&job.id(), None).unwrap(), job);
        for bad in ["wave:ORD-1", "wave:ORD-1:3", "wave:ORD-1:3:x", "wave:ORD-1:x:2"] {
            assert!(StartWave::decode(&JobId::parse(bad).unwrap(), None).is_err(), "{bad}");
        }
    }
}
