//! The tables of bindings store the decisions of the model, and a call writes no index.

use chrono::{DateTime, Utc};
use foundation::db::{self, Pool};
use model::{
    actor::Actor,
    binding::{
        AnswerDecision, Binding, BindingChange, BindingCommand, BindingConfig, BindingPhase, CallRules, ClaimDecision,
        CommandOutcome, DecisionMoment, HeaderChange, OtpSubmission, ProviderAnswer, TransactionHeader, decide_answer,
        decide_claim, decide_command, decide_otp, derive,
    },
};

use test_support::{TestApp, eventually};

const COLUMNS: &str =
    "server_id, account_id, state, reason, config, cycle, phase, trx_id, start_confirmed, interval_start, next_at, call_no,
    call_action, call_until, asks, failures, processing_deadline, otp_deadline, otp_tries, otp_submitted_at, unresolved,
    version, created_at, updated_at, deleted_at";

/// A stored binding that is changed only by decisions of the model, as in the store.
struct StoredBinding {
    db: Pool,
    row: Binding,
    now: DateTime<Utc>,
}

impl StoredBinding {
    async fn create(t: &TestApp) -> Self {
        let db = t.app.core.db.clone();
        let now = DateTime::from_timestamp_millis(i64::try_from(t.now_ms()).unwrap()).unwrap();
        t.sql("INSERT INTO provider_servers (id, provider, base_url, changed_by) VALUES ('S1', 'p', 'http://x', 'me')")
            .await;
        let (server, account) = ("S1".parse().unwrap(), "A1".parse().unwrap());
        let row = Binding::new_stopped("B".parse().unwrap(), server, account, BindingConfig::default(), now);
        sqlx::query(
            "INSERT INTO bindings (id, server_id, account_id, config, created_at, updated_at)
             VALUES ('B', 'S1', 'A1', $1, $2, $2)",
        )
        .bind(serde_json::to_value(&row.config).unwrap())
        .bind(now)
        .execute(&db)
        .await
        .unwrap();
        let stored = Self { db, row, now };
        stored.assert_same().await;
        stored
    }

    async fn assert_same(&self) {
        let read: Binding = sqlx::query_as("SELECT * FROM bindings").fetch_one(&self.db).await.unwrap();
        assert_eq!(read, self.row);
        let needs: bool = sqlx::query_scalar("SELECT needs_timer FROM bindings").fetch_one(&self.db).await.unwrap();
        assert_eq!(needs, derive(&self.row, self.now).is_some(), "{:?}", self.row);
    }

    async fn write(&mut self, change: &BindingChange) {
        self.row = self.row.apply(change);
        let update = format!(
            "UPDATE bindings b SET otp_value = $2, ({COLUMNS}) = (SELECT {COLUMNS} FROM jsonb_populate_record(b, $1))"
        );
        let row = serde_json::to_value(&self.row).unwrap();
        let done = sqlx::query(sqlx::AssertSqlSafe(update)).bind(row).bind(self.row.otp_value.clone());
        done.execute(&self.db).await.unwrap_or_else(|e| panic!("{e}: {:?}", self.row));
        if let Some(header) = &change.header {
            self.write_header(header).await;
        }
    }

    async fn write_header(&self, change: &HeaderChange) {
        let read = "SELECT * FROM transactions WHERE binding_id = 'B' AND cycle = $1";
        let read = sqlx::query_as(read).bind(change.cycle());
        let before: Option<TransactionHeader> = read.fetch_optional(&self.db).await.unwrap();
        let after = change.apply_to(before.as_ref(), self.now).unwrap();
        let write = "INSERT INTO transactions SELECT * FROM jsonb_populate_record(NULL::transactions, $1)
             ON CONFLICT (binding_id, cycle) DO UPDATE SET status = EXCLUDED.status, reason = EXCLUDED.reason,
                 provider_ref = EXCLUDED.provider_ref, asks = EXCLUDED.asks, settle_at = EXCLUDED.settle_at,
                 ended_at = EXCLUDED.ended_at";
        sqlx::query(write).bind(serde_json::to_value(after).unwrap()).execute(&self.db).await.unwrap();
    }

    async fn command(&mut self, command: &BindingCommand) {
        match decide_command(&self.row, command, &Actor::SYSTEM, self.now) {
            CommandOutcome::Write(change) => self.write(&change).await,
            other => panic!("{other:?}"),
        }
    }

    /// Waits for the binding's timer, claims the due call and records its answer.
    async fn call(&mut self, answer: &ProviderAnswer) {
        let rules = CallRules { margin: chrono::TimeDelta::zero(), repeats_are_safe: true, otp_is_readable: true };
        let moment = |now| DecisionMoment { now, luck: 0.5 };
        self.now = derive(&self.row, self.now).unwrap().due.max(self.now);
        let ClaimDecision::Call(claim) = decide_claim(&self.row, rules, moment(self.now)) else {
            panic!("no call of {:?}", self.row)
        };
        self.write(&claim.change).await;
        self.assert_same().await;
        let answered = decide_answer(&self.row, claim.call.call_no, answer, moment(self.now));
        let AnswerDecision::Write(change) = answered else { panic!("{answered:?}") };
        self.write(&change).await;
        self.assert_same().await;
    }
}

#[tokio::test]
async fn a_row_holds_every_phase_of_a_binding() {
    let t = TestApp::start().await;
    let mut b = StoredBinding::create(&t).await;
    b.command(&BindingCommand::Start).await;
    b.call(&ProviderAnswer::Success { provider_ref: Some("P-1".to_owned()) }).await;
    b.call(&ProviderAnswer::Processing { provider_ref: None }).await;
    b.call(&ProviderAnswer::OtpWanted { provider_ref: None }).await;
    let otp = OtpSubmission { trx_id: "B.2".parse().unwrap(), sealed: vec![1, 2, 3], digest: "d".to_owned() };
    let CommandOutcome::Write(change) = decide_otp(&b.row, &otp, &Actor::SYSTEM, b.now) else { panic!("refused") };
    b.write(&change).await;
    b.call(&ProviderAnswer::Success { provider_ref: None }).await;
    assert_eq!(t.count("SELECT count(*) FROM bindings WHERE otp_value IS NOT NULL").await, 0);
    b.row.config.processing_timeout_ms = 1_000;
    b.call(&ProviderAnswer::Processing { provider_ref: None }).await;
    while b.row.phase == BindingPhase::Processing {
        b.call(&ProviderAnswer::Processing { provider_ref: None }).await;
    }
    b.command(&BindingCommand::Pause).await;
    b.assert_same().await;
    b.command(&BindingCommand::Stop { reason: model::binding::StopReason::ServerDisabled }).await;
    b.assert_same().await;
    let headers = t.texts("SELECT trx_id || ' ' || status FROM transactions ORDER BY cycle").await;
    assert_eq!(headers, ["B.1 SUKSES", "B.2 SUKSES", "B.3 UNRESOLVED"]);
}

#[tokio::test]
async fn calls_of_a_binding_write_no_index() {
    let t = TestApp::start().await;
    let mut b = StoredBinding::create(&t).await;
    b.command(&BindingCommand::Start).await;
    for _ in 0..20 {
        b.call(&ProviderAnswer::Processing { provider_ref: None }).await;
        b.call(&ProviderAnswer::Success { provider_ref: None }).await;
    }
    // A Postgres backend reports its statistics when it ends.
    t.app.core.close().await;
    let fresh = db::connect_pool(&t.app.config.database).await.unwrap();
    let counts = "SELECT sum(n_tup_upd)::bigint, sum(n_tup_hot_upd)::bigint FROM pg_stat_user_tables
                  WHERE relname = 'bindings' OR relname LIKE 'transactions\\_%'";
    eventually("the statistics arrive", || async {
        let (updates, hot): (i64, i64) = sqlx::query_as(counts).fetch_one(&fresh).await.unwrap();
        // `start` changes the state, which is in an index.
        assert!(updates - hot <= 1, "{updates} updates, {hot} without an index write");
        updates >= 120
    })
    .await;
}

#[tokio::test]
async fn the_tables_refuse_what_no_decision_leads_to() {
    let t = TestApp::start().await;
    StoredBinding::create(&t).await;
    for broken in [
        "UPDATE bindings SET phase = 'CALLING'",
        "UPDATE bindings SET state = 'STOPPING', reason = 'manual_stop'",
        "UPDATE bindings SET state = 'RUNNING'",
        "UPDATE bindings SET reason = 'bored'",
        "UPDATE bindings SET otp_value = '1', otp_submitted_at = now()",
        "UPDATE bindings SET server_id = 'S2'",
        "UPDATE provider_servers SET max_concurrent = 0",
        "INSERT INTO transactions (trx_id, binding_id, cycle, server_id, account_id, status, started_at)
         VALUES ('B.2', 'B', 1, 'S1', 'A1', 'STARTED', now())",
    ] {
        let error = sqlx::query(broken).execute(&t.app.core.db).await.unwrap_err();
        let code = error.as_database_error().and_then(|e| e.code().map(std::borrow::Cow::into_owned));
        assert!(matches!(code.as_deref(), Some("23514" | "23503")), "{broken}: {error}");
    }
}
