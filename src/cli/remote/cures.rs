//! Commands that help after an error of the API whose message names no command.

/// Error codes, and what to do about them at the command line.
const CURES: [(&str, &str); 14] = [
    ("ORDER_NOT_FOUND", "see: dispatchq order list"),
    ("ALERT_NOT_FOUND", "see: dispatchq alert list"),
    ("TRANSACTION_NOT_FOUND", "see: dispatchq binding transactions BINDING"),
    ("JOB_NOT_FOUND", "see: dispatchq job list QUEUE, dispatchq dead list"),
    ("NOT_DEAD", "see: dispatchq dead list"),
    ("PARTNER_NOT_FOUND", "see: dispatchq partner list"),
    ("MESSAGE_NOT_FOUND", "see: dispatchq outbox list"),
    ("KEY_NOT_FOUND", "see: dispatchq apikey list"),
    ("KEY_EXISTS", "use: dispatchq apikey rotate --name NAME"),
    ("NAME_OWNS_ORDERS", "use: --take-over"),
    ("ENDPOINT_NOT_FOUND", "see: dispatchq webhook list"),
    ("USER_NOT_FOUND", "see: dispatchq user list"),
    ("SERVER_DISABLED", "enable it: dispatchq server set ID --enabled true"),
    ("PLAN_RUNNING", "see how far it is: dispatchq plan show ID"),
];

/// Returns the command that helps after an error with this code.
pub(super) fn find_cure(code: &str) -> Option<&'static str> {
    CURES.iter().find(|(known, _)| *known == code).map(|(_, cure)| *cure)
}
