//! Accounts and transactions of the provider. Pure: the caller passes the time.
//!
//! Final transactions are removed after a while. Counters keep their values.

use std::{
    collections::{HashMap, VecDeque},
    time::{Duration, Instant},
};

use serde::Serialize;

use super::fate::TransactionFate;

/// Time that final transactions are kept.
const KEEP_FINAL: Duration = Duration::from_secs(600);

/// Results of transactions since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LedgerCounters {
    pub started: u64,
    pub succeeded: u64,
    pub failed: u64,
    /// Starts refused because the balance is 0.
    pub insufficient: u64,
    pub otps_right: u64,
    pub otps_wrong: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SimulatedStanding {
    Done,
    Processing { until: Instant },
    WaitingOtp { until: Instant },
    Failed(String),
}

/// Status and reason of a transaction, as the API returns them.
pub(super) type StandingWords = (&'static str, Option<String>);

#[derive(Debug)]
struct SimulatedTransaction {
    account: String,
    standing: SimulatedStanding,
    /// Keys of received requests, with their fingerprint and, for an OTP, the answer.
    keys: Vec<(String, u64, Option<StandingWords>)>,
}

/// Relation of a key to earlier requests.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum KeyVerdict {
    New,
    /// The same request again, with the stored answer if there is one.
    Again(Option<StandingWords>),
    Differs,
}

#[derive(Debug, Default)]
pub(super) struct TransactionLedger {
    transactions: HashMap<String, SimulatedTransaction>,
    /// Known balances of accounts. Other accounts have the balance of the knob.
    balances: HashMap<String, u64>,
    /// Transactions in the order of their start.
    begun: VecDeque<(Instant, String)>,
    pub(super) counters: LedgerCounters,
}

/// A request that starts a transaction or enters an OTP.
#[derive(Debug)]
pub(super) struct StartRequest<'a> {
    pub(super) trx_id: &'a str,
    pub(super) account: &'a str,
    pub(super) key: &'a str,
    pub(super) fingerprint: u64,
}

impl TransactionLedger {
    pub(super) fn known_transactions(&self) -> usize {
        self.transactions.len()
    }

    pub(super) fn balance_of(&self, account: &str, at_first: Option<u64>) -> Option<u64> {
        self.balances.get(account).copied().or(at_first)
    }

    pub(super) fn set_balance(&mut self, account: &str, balance: u64) {
        self.balances.insert(account.to_owned(), balance);
    }

    /// Starts a transaction, or returns how the key relates to the existing one.
    pub(super) fn start_transaction(
        &mut self,
        request: &StartRequest<'_>,
        at_first: Option<u64>,
        fate: TransactionFate,
        otp_lifetime: Duration,
        now: Instant,
    ) -> KeyVerdict {
        self.forget_old(now);
        if let Some(known) = self.transactions.get_mut(request.trx_id) {
            return check_key(known, request.key, request.fingerprint);
        }
        self.counters.started += 1;
        let standing = match (self.balance_of(request.account, at_first), fate) {
            (Some(0), _) => {
                self.counters.insufficient += 1;
                SimulatedStanding::Failed("insufficient_balance_before_start".to_owned())
            }
            (_, TransactionFate::Succeeds) => SimulatedStanding::Done,
            (_, TransactionFate::SucceedsAfter(duration)) => SimulatedStanding::Processing { until: now + duration },
            (_, TransactionFate::WantsOtp) => SimulatedStanding::WaitingOtp { until: now + otp_lifetime },
            (_, TransactionFate::Fails(reason)) => SimulatedStanding::Failed(reason),
        };
        let pays = !matches!(standing, SimulatedStanding::Failed(_));
        if let Some(balance) = self.balance_of(request.account, at_first).filter(|_| pays) {
            self.set_balance(request.account, balance - 1);
        }
        self.count_final(&standing);
        let keys = vec![(request.key.to_owned(), request.fingerprint, None)];
        let transaction = SimulatedTransaction { account: request.account.to_owned(), standing, keys };
        self.transactions.insert(request.trx_id.to_owned(), transaction);
        self.begun.push_back((now, request.trx_id.to_owned()));
        KeyVerdict::New
    }

    /// Returns the current status of a transaction. `None` if the account has no such transaction.
    pub(super) fn read_standing(&mut self, trx_id: &str, account: &str, now: Instant) -> Option<StandingWords> {
        let transaction = self.transactions.get_mut(trx_id).filter(|t| t.account == account)?;
        let settled = match &transaction.standing {
            SimulatedStanding::Processing { until } if *until <= now => Some(SimulatedStanding::Done),
            SimulatedStanding::WaitingOtp { until } if *until <= now => {
                Some(SimulatedStanding::Failed("otp_expired".to_owned()))
            }
            _ => None,
        };
        if let Some(settled) = settled {
            transaction.standing = settled.clone();
            self.count_final(&settled);
        }
        self.transactions.get(trx_id).map(|t| standing_words(&t.standing))
    }

    /// Tries an OTP. The same key gets the same answer. `None` if there is no such transaction.
    pub(super) fn try_otp(
        &mut self,
        request: &StartRequest<'_>,
        is_right: bool,
        now: Instant,
    ) -> Option<(KeyVerdict, StandingWords)> {
        let before = self.read_standing(request.trx_id, request.account, now)?;
        let transaction = self.transactions.get_mut(request.trx_id)?;
        let verdict = check_key(transaction, request.key, request.fingerprint);
        match &verdict {
            KeyVerdict::Differs => return Some((verdict, before)),
            KeyVerdict::Again(Some(words)) => {
                let words = words.clone();
                return Some((verdict, words));
            }
            KeyVerdict::New | KeyVerdict::Again(None) => {}
        }
        let waits = matches!(transaction.standing, SimulatedStanding::WaitingOtp { .. });
        let words = match (waits, is_right) {
            (true, true) => {
                transaction.standing = SimulatedStanding::Done;
                self.counters.otps_right += 1;
                self.counters.succeeded += 1;
                standing_words(&SimulatedStanding::Done)
            }
            (true, false) => {
                self.counters.otps_wrong += 1;
                ("GAGAL", Some("wrong_otp".to_owned()))
            }
            // The transaction does not wait for an OTP, so the answer is its status.
            (false, _) => before,
        };
        transaction.keys.push((request.key.to_owned(), request.fingerprint, Some(words.clone())));
        Some((verdict, words))
    }

    fn count_final(&mut self, standing: &SimulatedStanding) {
        match standing {
            SimulatedStanding::Done => self.counters.succeeded += 1,
            SimulatedStanding::Failed(_) => self.counters.failed += 1,
            SimulatedStanding::Processing { .. } | SimulatedStanding::WaitingOtp { .. } => {}
        }
    }

    /// Removes old transactions, oldest first. A transaction that is still open is kept for another period.
    fn forget_old(&mut self, now: Instant) {
        while let Some((at, trx_id)) = self.begun.front().cloned() {
            if now.saturating_duration_since(at) < KEEP_FINAL {
                return;
            }
            self.begun.pop_front();
            let standing = self.transactions.get(&trx_id).map(|t| &t.standing);
            if matches!(standing, Some(SimulatedStanding::Processing { until } | SimulatedStanding::WaitingOtp { until }) if *until > now)
            {
                self.begun.push_back((now, trx_id));
            } else {
                self.transactions.remove(&trx_id);
            }
        }
    }
}

fn check_key(transaction: &SimulatedTransaction, key: &str, fingerprint: u64) -> KeyVerdict {
    match transaction.keys.iter().find(|(known, ..)| known == key) {
        None => KeyVerdict::New,
        Some((_, known, words)) if *known == fingerprint => KeyVerdict::Again(words.clone()),
        Some(_) => KeyVerdict::Differs,
    }
}

fn standing_words(standing: &SimulatedStanding) -> StandingWords {
    match standing {
        SimulatedStanding::Done => ("SUKSES", None),
        SimulatedStanding::Processing { .. } => ("PROCESSING", None),
        SimulatedStanding::WaitingOtp { .. } => ("WAITING_OTP", None),
        SimulatedStanding::Failed(reason) => ("GAGAL", Some(reason.clone())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFETIME: Duration = Duration::from_secs(60);

    fn request<'a>(trx_id: &'a str, key: &'a str, fingerprint: u64) -> StartRequest<'a> {
        StartRequest { trx_id, account: "A1", key, fingerprint }
    }

    #[test]
    fn key_starts_one_transaction() {
        let (mut ledger, now) = (TransactionLedger::default(), Instant::now());
        let mut start = |trx: &'static str, fingerprint| {
            ledger.start_transaction(&request(trx, "B:1", fingerprint), None, TransactionFate::Succeeds, LIFETIME, now)
        };
        assert_eq!([start("B.1", 1), start("B.1", 1)], [KeyVerdict::New, KeyVerdict::Again(None)]);
        assert_eq!(start("B.1", 2), KeyVerdict::Differs);
        assert_eq!((ledger.counters.started, ledger.counters.succeeded), (1, 1));
        assert_eq!(ledger.read_standing("B.1", "A2", now), None, "of another account");
    }

    #[test]
    fn only_successful_starts_reduce_the_balance() {
        let (mut ledger, now) = (TransactionLedger::default(), Instant::now());
        let locked = || TransactionFate::Fails("account_locked".to_owned());
        for (n, fate) in [TransactionFate::Succeeds, locked(), TransactionFate::Succeeds, TransactionFate::Succeeds]
            .into_iter()
            .enumerate()
        {
            let (trx, key) = (format!("B.{n}"), format!("B:{n}"));
            ledger.start_transaction(&request(&trx, &key, 1), Some(2), fate, LIFETIME, now);
        }
        assert_eq!(ledger.balance_of("A1", Some(2)), Some(0));
        let words = ledger.read_standing("B.3", "A1", now).unwrap();
        assert_eq!(words, ("GAGAL", Some("insufficient_balance_before_start".to_owned())));
        ledger.set_balance("A1", 1);
        ledger.start_transaction(&request("B.4", "B:4", 1), Some(2), TransactionFate::Succeeds, LIFETIME, now);
        assert_eq!(ledger.read_standing("B.4", "A1", now).unwrap().0, "SUKSES");
    }

    #[test]
    fn otp_is_tried_once_for_each_key() {
        let (mut ledger, now) = (TransactionLedger::default(), Instant::now());
        ledger.start_transaction(&request("B.1", "B:1", 1), None, TransactionFate::WantsOtp, LIFETIME, now);
        let wrong = ("GAGAL", Some("wrong_otp".to_owned()));
        let (verdict, words) = ledger.try_otp(&request("B.1", "B:1:otp:1", 7), false, now).unwrap();
        assert_eq!((verdict, &words), (KeyVerdict::New, &wrong));
        let (verdict, words) = ledger.try_otp(&request("B.1", "B:1:otp:1", 7), false, now).unwrap();
        assert_eq!((verdict, words), (KeyVerdict::Again(Some(wrong.clone())), wrong));
        assert_eq!(ledger.try_otp(&request("B.1", "B:1:otp:1", 8), true, now).unwrap().0, KeyVerdict::Differs);
        assert_eq!(ledger.try_otp(&request("B.1", "B:1:otp:2", 8), true, now).unwrap().1, ("SUKSES", None));
        assert_eq!((ledger.counters.otps_wrong, ledger.counters.otps_right), (1, 1));
        assert_eq!(ledger.try_otp(&request("B.9", "B:9:otp:1", 8), true, now), None);
    }

    #[test]
    fn waits_expire_and_old_transactions_are_removed() {
        let (mut ledger, now) = (TransactionLedger::default(), Instant::now());
        let slow = TransactionFate::SucceedsAfter(Duration::from_secs(5));
        ledger.start_transaction(&request("B.1", "B:1", 1), None, slow, LIFETIME, now);
        ledger.start_transaction(&request("B.2", "B:2", 1), None, TransactionFate::WantsOtp, 10 * KEEP_FINAL, now);
        assert_eq!(ledger.read_standing("B.1", "A1", now).unwrap().0, "PROCESSING");
        assert_eq!(ledger.read_standing("B.1", "A1", now + Duration::from_secs(5)).unwrap().0, "SUKSES");
        let later = now + KEEP_FINAL;
        ledger.start_transaction(&request("B.3", "B:3", 1), None, TransactionFate::Succeeds, LIFETIME, later);
        assert_eq!(ledger.read_standing("B.1", "A1", later), None);
        assert_eq!(ledger.read_standing("B.2", "A1", later).unwrap().0, "WAITING_OTP", "it is still open");
        let expired = ledger.read_standing("B.2", "A1", now + 10 * KEEP_FINAL).unwrap();
        assert_eq!(expired, ("GAGAL", Some("otp_expired".to_owned())));
    }
}
