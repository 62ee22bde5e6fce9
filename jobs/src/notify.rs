//! Delivers one outbox message over one channel. The outbox row has the message, its tries and the time of the next
//! one.

use job_contract::{DecodeError, Job, JobId};

use crate::{OrderId, SubjectId, queues};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendNotification {
    /// Order or binding of the message. The job's id contains it only for human readers.
    pub subject: SubjectId,
    pub outbox_id: i64,
}

impl Job for SendNotification {
    const KIND: &'static str = "notify";
    const QUEUE: &'static str = queues::NOTIFY;

    fn id(&self) -> JobId {
        let id = format!("{}:{}:{}", Self::KIND, self.subject, self.outbox_id);
        JobId::parse(id).expect("the id of an order or binding fits into a job id")
    }

    fn decode(id: &JobId, _payload: Option<serde_json::Value>) -> Result<Self, DecodeError> {
        // The ids of bindings and orders have the same format.
        let (subject, outbox_id) = OrderId::from_numbered_job_id(id)?;
        Ok(Self { subject: subject.into(), outbox_id })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BindingId;

    #[test]
    fn binding_message_job_reads_back_unchanged() {
        let binding: BindingId = "acct_7-a".parse().unwrap();
        let job = SendNotification { subject: binding.into(), outbox_id: 41 };
        assert_eq!(job.id().as_str(), "notify:acct_7-a:41");
        assert_eq!(SendNotification::decode(&job.id(), None).unwrap(), job);
    }
}
