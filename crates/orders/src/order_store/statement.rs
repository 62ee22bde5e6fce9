//! The statement that changes orders. It contains only the parts that a batch needs: most batches need few, and each
//! part costs time.
//!
//! Parameters: 1 rows of `orders`, 2 events, 3 ids of the orders, 4 bookings, 5 offers that end, 6 messages, 7 ids of
//! the drivers who are free again, 8 rankings, 9 callbacks that are not stored yet, 10 offers to create, 11 the first
//! key of the locks of drivers who are getting an offer, 12 payment events, 13 refunds, 14 contents, 15 acknowledgements
//! of alerts, 16 new alerts. All but 3, 7 and 11 are JSON.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};

use parking_lot::Mutex;

/// Parts of the statement, apart from the order rows, and the handling of locked rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct WriteParts {
    /// Whether to skip rows that another session has locked instead of waiting for them.
    pub(super) passes_over: bool,
    pub(super) events: bool,
    pub(super) callbacks: bool,
    /// Callbacks that are stored together with their changes.
    pub(super) arrivals: bool,
    pub(super) bookings: bool,
    /// Bookings whose booking id is new.
    pub(super) matches: bool,
    pub(super) offers: bool,
    pub(super) new_offers: bool,
    pub(super) drivers: bool,
    pub(super) rankings: bool,
    pub(super) messages: bool,
    /// Times of scheduled orders.
    pub(super) schedule: bool,
    /// Rows of the feed for producers.
    pub(super) steps: bool,
    /// Messages that contain the number of a step.
    pub(super) told_steps: bool,
    pub(super) payments: bool,
    /// Payment events of orders that have as many as are kept.
    pub(super) old_payments: bool,
    pub(super) refunds: bool,
    pub(super) contents: bool,
    /// Acknowledgements of alerts.
    pub(super) settlements: bool,
    pub(super) alerts: bool,
    /// Changes that need room in their area.
    pub(super) room: bool,
}

impl WriteParts {
    /// Returns the statement with these parts. The text is always the same, so each connection prepares it once.
    pub(super) fn statement(self) -> Arc<str> {
        static KNOWN: LazyLock<Mutex<HashMap<WriteParts, Arc<str>>>> = LazyLock::new(Mutex::default);
        let mut known = KNOWN.lock();
        known.entry(self).or_insert_with(|| self.build_statement().into()).clone()
    }

    fn build_statement(self) -> String {
        let lock_wait = if self.passes_over { "SKIP LOCKED" } else { "" };
        let part = |is_needed: bool, text: &str| {
            if is_needed { text.replace("{lock_wait}", lock_wait) } else { String::new() }
        };
        let ready = [part(self.drivers, UNLOCKED_DRIVER), part(self.new_offers, ALL_FREE), part(self.room, HAS_ROOM)];
        let unlocked_driver = ready.concat();
        let checks = [
            part(self.callbacks, CALLBACK_CHECK),
            part(self.arrivals, ARRIVAL_CHECK),
            part(self.offers, OFFERS_CHECK),
            part(self.payments, PAYMENT_CHECK),
        ];
        let checks = checks.concat();
        let first = [
            part(self.drivers, LOCKED_DRIVERS),
            part(self.offers, OFFERS),
            part(self.new_offers, FREE_DRIVERS),
            part(self.arrivals, ARRIVALS),
            part(self.payments, PAYMENTS),
            part(self.room, ROOM),
        ];
        let first = first.concat();
        let parts = [
            part(self.events, EVENTS),
            part(self.callbacks, CALLBACKS),
            part(self.arrivals, STORED_ARRIVALS),
            part(self.bookings, BOOKINGS),
            part(self.matches, MATCHES),
            part(self.offers, ENDED_OFFERS),
            part(self.new_offers, NEW_OFFERS),
            part(self.drivers, FREED_DRIVERS),
            part(self.rankings, RANKINGS),
            part(self.steps, STEPS),
            part(self.told_steps, NUMBERED_STEPS),
            part(self.messages, if self.told_steps { &STEP_MESSAGES } else { &PLAIN_MESSAGES }),
            part(self.payments, PAYMENT_EVENTS),
            part(self.old_payments, OLD_PAYMENT_EVENTS),
            part(self.refunds, REFUNDS),
            part(self.contents, CONTENTS),
            part(self.settlements, SETTLE_ALERTS),
            part(self.alerts, RAISE_ALERTS),
        ];
        let parts = parts.concat();
        let more_columns = [
            part(self.schedule, SCHEDULE_COLUMNS),
            part(self.contents, CONTENTS_COLUMNS),
            part(self.room, ROOM_COLUMNS),
        ];
        let more_columns = more_columns.concat();
        let more_values = part(self.schedule, SCHEDULE) + &part(self.contents, NEW_PICKUP);
        let messages = if self.messages { NEW_MESSAGES } else { "'[]'::json" };
        let steps = if self.steps { NEW_STEPS } else { "'{}'::bigint[]" };
        let callbacks = if self.matches { MATCHED } else { "'[]'::json" };
        let free_drivers = if self.new_offers { STILL_FREE } else { "'{}'::text[]" };
        let settled = if self.settlements { SETTLED } else { "'[]'::json" };
        let raised = if self.alerts { RAISED } else { "'[]'::json" };
        let has_room = if self.room { ROOM_FOUND } else { "NULL::boolean" };
        format!(
            "-- write change
         WITH n AS MATERIALIZED (
             SELECT * FROM json_to_recordset($1::json) AS n (
                 id text, expected bigint, write_id uuid, status text, driver_id text, attempt_no integer, round integer,
                 attempt_deadline timestamptz, wave_no integer, next_wave_at timestamptz, next_attempt_at timestamptz, lifetime_waived boolean,
                 held_for_review boolean, held_reason text, hold_cause jsonb, closed_at timestamptz,
                 updated_at timestamptz, payment_status text, paid_at timestamptz, job_id text, poll_no integer, next_poll_at timestamptz,
                 job_id_asks integer, partner text, former_drivers text[], trip_deadline timestamptz, callback bigint, result text, ended_offers bigint,
                 new_offers bigint, freed_driver text, assumed_now timestamptz, basis_write uuid{more_columns})),
         l AS MATERIALIZED (
             SELECT id, version FROM orders WHERE id = ANY ($3) ORDER BY id FOR NO KEY UPDATE {lock_wait}),{first}
         r AS MATERIALIZED (
             SELECT n.*, l.version FROM n JOIN l ON l.id = n.id WHERE true{unlocked_driver}),
         u AS (
             UPDATE orders o
             SET status = r.status, driver_id = r.driver_id, attempt_no = r.attempt_no, round = r.round,
                 attempt_deadline = r.attempt_deadline, wave_no = r.wave_no, next_wave_at = r.next_wave_at,
                 next_attempt_at = r.next_attempt_at,
                 lifetime_waived = r.lifetime_waived, held_for_review = r.held_for_review, held_reason = r.held_reason,
                 hold_cause = r.hold_cause, closed_at = r.closed_at, updated_at = r.updated_at,
                 payment_status = r.payment_status, paid_at = r.paid_at, job_id = r.job_id, poll_no = r.poll_no,
                 next_poll_at = r.next_poll_at, job_id_asks = r.job_id_asks, partner = r.partner, former_drivers = r.former_drivers, trip_deadline = r.trip_deadline,
                 write_id = r.write_id, version = o.version + 1{more_values}
             FROM r WHERE o.id = r.id AND o.version = r.expected AND r.version = r.expected
               AND (r.assumed_now IS NULL OR abs(extract(epoch FROM dispatchq_now() - r.assumed_now)) < 1)
               AND (r.basis_write IS NULL OR o.write_id = r.basis_write){checks}
             RETURNING o.id, o.owner, o.driver_id, o.has_details){parts}
         SELECT n.id, l.version = n.expected AS is_current, r.id IS NOT NULL AS is_ready, u.id IS NOT NULL AS is_written, {free_drivers} AS free_drivers,
                {messages} AS messages, {callbacks} AS callbacks, {steps} AS steps, {settled} AS settled, {raised} AS raised, {has_room} AS has_room,
                dispatchq_now() AS now
         FROM n LEFT JOIN l ON l.id = n.id LEFT JOIN r ON r.id = n.id LEFT JOIN u ON u.id = n.id"
        )
    }
}

/// Columns that change only with the schedule of an order.
const SCHEDULE_COLUMNS: &str = ", pickup_at timestamptz, starts_at timestamptz, warn_at timestamptz, lifetime_deadline timestamptz, admission text";

const CONTENTS_COLUMNS: &str = ", pickup_lat float8, pickup_lng float8";

/// The details that the change writes are never empty.
const NEW_PICKUP: &str = ",
                 pickup_lat = coalesce(r.pickup_lat, o.pickup_lat), pickup_lng = coalesce(r.pickup_lng, o.pickup_lng),
                 has_details = o.has_details OR r.pickup_lat IS NOT NULL";

const ROOM_COLUMNS: &str = ", room_area text, room_type text, room_limit bigint";

/// Counts the waiting orders under the lock of the area, and may wait for it. A change that needs room is therefore
/// written alone.
const ROOM: &str = "
         y AS MATERIALIZED (
             SELECT n.id, dispatchq_take_place(n.id, n.room_area, n.room_type, n.room_limit) AS has_room
             FROM n JOIN l ON l.id = n.id WHERE n.room_limit IS NOT NULL AND l.version = n.expected),";

const HAS_ROOM: &str = "
               AND (n.room_limit IS NULL OR EXISTS (SELECT 1 FROM y WHERE y.id = n.id AND y.has_room))";

const ROOM_FOUND: &str = "(SELECT y.has_room FROM y WHERE y.id = n.id)";

/// An order without a pickup time keeps its lifetime.
const SCHEDULE: &str = ",
                 pickup_at = r.pickup_at, starts_at = r.starts_at, warn_at = r.warn_at,
                 lifetime_deadline = coalesce(r.lifetime_deadline, o.lifetime_deadline),
                 admission = coalesce(r.admission, o.admission)";

/// Drivers are locked after all orders: counting the locked orders forces this, whatever the plan. Otherwise two writes
/// could deadlock.
const LOCKED_DRIVERS: &str = "
         v AS MATERIALIZED (
             SELECT id FROM drivers WHERE id = ANY ($7) AND (SELECT count(*) FROM l) > 0
             ORDER BY id FOR NO KEY UPDATE {lock_wait}),";

const UNLOCKED_DRIVER: &str = "
               AND (n.freed_driver IS NULL OR EXISTS (SELECT 1 FROM v WHERE v.id = n.freed_driver)
                    OR NOT EXISTS (SELECT 1 FROM drivers w WHERE w.id = n.freed_driver))";

const EVENTS: &str = ",
         e AS (
             INSERT INTO order_events (order_id, from_status, to_status, reason, actor, attempt_no, detail, at, key_id)
             SELECT e.order_id, e.from_status, e.to_status, e.reason, e.actor, e.attempt_no, e.detail, e.at, e.key_id
             FROM ROWS FROM (json_to_recordset($2::json) AS (
                 order_id text, from_status text, to_status text, reason text, actor text, key_id uuid,
                 attempt_no integer, detail text, at timestamptz)) WITH ORDINALITY
                 AS e (order_id, from_status, to_status, reason, actor, key_id, attempt_no, detail, at, place)
             JOIN u ON u.id = e.order_id ORDER BY e.place)";

/// Free drivers who are not getting an offer from another order, each with the lowest free slot. If a driver's slot is
/// taken after the statement started, the unique index fails the statement. A driver is locked only for an order that
/// can be written, because other orders may want the driver.
const FREE_DRIVERS: &str = include_str!("free_drivers.sql");

const ALL_FREE: &str = "
               AND (n.new_offers = 0 OR n.new_offers = (SELECT count(*) FROM p WHERE p.order_id = n.id AND p.is_spare IS NULL))";

const OFFERS: &str = "
         f AS MATERIALIZED (
             SELECT * FROM json_to_recordset($5::json) AS f (
                 order_id text, id uuid, from_state text, to_state text, why text, at timestamptz)),";

const ARRIVALS: &str = "
         g AS MATERIALIZED (
             SELECT * FROM json_to_recordset($9::json) AS g (
                 order_id text, partner text, event_id text, booking_id text, body jsonb, result text, at timestamptz)),";

const CALLBACK_CHECK: &str = "
               AND (r.callback IS NULL OR (SELECT i.state FROM inbox i WHERE i.id = r.callback) = 'pending')";

/// If another session is storing the callback, the statement fails, because it is unknown whether that session
/// processes it.
const ARRIVAL_CHECK: &str = "
               AND NOT EXISTS (SELECT 1 FROM g JOIN inbox i ON i.partner = g.partner AND i.event_id = g.event_id
                               WHERE g.order_id = r.id)";

const OFFERS_CHECK: &str = "
               AND (r.ended_offers = 0 OR r.ended_offers = (SELECT count(*) FROM f JOIN offers x ON x.order_id = f.order_id AND x.id = f.id
                                                            WHERE f.order_id = r.id AND x.state = f.from_state))";

const PAYMENTS: &str = "
         pe AS MATERIALIZED (
             SELECT * FROM json_to_recordset($12::json) AS pe (
                 order_id text, event_id text, payment_status text, at timestamptz)),";

const PAYMENT_CHECK: &str = "
               AND NOT EXISTS (SELECT 1 FROM pe JOIN payment_events k ON k.order_id = pe.order_id AND k.event_id = pe.event_id
                               WHERE pe.order_id = r.id)";

const PAYMENT_EVENTS: &str = include_str!("payment_events.sql");
const OLD_PAYMENT_EVENTS: &str = include_str!("old_payment_events.sql");
const REFUNDS: &str = include_str!("refunds.sql");
const CONTENTS: &str = include_str!("contents.sql");
const SETTLE_ALERTS: &str = include_str!("settle_alerts.sql");
const RAISE_ALERTS: &str = include_str!("raise_alerts.sql");

const CALLBACKS: &str = ",
         i AS (
             UPDATE inbox SET state = 'processed', result = r.result, processed_at = r.updated_at
             FROM r JOIN u ON u.id = r.id WHERE inbox.id = r.callback)";

const STORED_ARRIVALS: &str = ",
         h AS (
             INSERT INTO inbox (partner, event_id, order_id, booking_id, body, state, result, received_at, processed_at)
             SELECT g.partner, g.event_id, g.order_id, g.booking_id, g.body, 'processed', g.result, g.at, g.at
             FROM g JOIN u ON u.id = g.order_id)";

const BOOKINGS: &str = include_str!("bookings.sql");

const MATCHES: &str = ",
         k AS (
             UPDATE inbox SET state = 'pending', order_id = c.order_id
             FROM c WHERE c.is_newly_known AND inbox.partner = c.partner AND inbox.booking_id = c.booking_id
                      AND inbox.state = 'unmatched'
             RETURNING inbox.id, inbox.order_id, inbox.received_at)";

const ENDED_OFFERS: &str = ",
         x AS (
             UPDATE offers SET state = f.to_state, reason = f.why, responded_at = f.at
             FROM f JOIN u ON u.id = f.order_id
             WHERE offers.order_id = f.order_id AND offers.id = f.id AND offers.state = f.from_state)";

const NEW_OFFERS: &str = ",
         t AS (
             INSERT INTO offers (id, order_id, attempt_no, wave, round, driver_id, distance_m, score, rank, slot, offered_at,
                                 expires_at)
             SELECT p.id, p.order_id, p.attempt_no, p.wave, p.round, p.driver_id, p.distance_m, p.score, p.rank, p.slot,
                    p.offered_at, p.expires_at
             FROM p JOIN u ON u.id = p.order_id WHERE p.is_spare IS NULL)";

const FREED_DRIVERS: &str = ",
         d AS (
             UPDATE drivers SET idle_since = r.updated_at, updated_at = r.updated_at
             FROM r JOIN u ON u.id = r.id WHERE drivers.id = r.freed_driver)";

const RANKINGS: &str = ",
         a AS (
             INSERT INTO rankings (order_id, attempt_no, at, drivers, distances_m, idle_min, live_offers, scores, excluded_why,
                                   missing)
             SELECT a.order_id, a.attempt_no, a.at, a.drivers, a.distances_m, a.idle_min, a.live_offers, a.scores, a.excluded_why,
                    a.missing
             FROM json_to_recordset($8::json) AS a (
                 order_id text, attempt_no integer, at timestamptz, drivers text[], distances_m real[], idle_min real[],
                 live_offers smallint[], scores float8[], excluded_why text[], missing text[])
             JOIN u ON u.id = a.order_id
             ON CONFLICT (order_id, attempt_no) DO UPDATE
                 SET at = excluded.at, drivers = excluded.drivers, distances_m = excluded.distances_m,
                     idle_min = excluded.idle_min, live_offers = excluded.live_offers, scores = excluded.scores,
                     excluded_why = excluded.excluded_why, missing = excluded.missing)";

/// A message about a step gets the number of the step in the feed, which also keeps the message from being stored twice.
static STEP_MESSAGES: LazyLock<String> = LazyLock::new(|| {
    MESSAGES
        .replace("{dedupe_key}", "coalesce(k.seq::text, m.dedupe_key)")
        .replace(
            "{payload}",
            "CASE WHEN k.seq IS NULL THEN m.payload ELSE m.payload || jsonb_build_object('seq', k.seq) END",
        )
        .replace("{numbered}", "LEFT JOIN sn k ON k.order_id = m.order_id AND k.step_no = m.step_no")
});

static PLAIN_MESSAGES: LazyLock<String> = LazyLock::new(|| {
    MESSAGES.replace("{dedupe_key}", "m.dedupe_key").replace("{payload}", "m.payload").replace("{numbered}", "")
});

const MESSAGES: &str = include_str!("messages.sql");

/// Steps with their numbers in the change, from 1.
const NUMBERED_STEPS: &str = ",
         sn AS (
             SELECT s.order_id, s.seq, row_number() OVER (PARTITION BY s.order_id ORDER BY s.seq) AS step_no FROM s)";

const STEPS: &str = ",
         s AS (
             INSERT INTO order_feed (order_id, owner, kind, status, from_status, reason, attempt_no, driver_id, at, changed,
                                     has_details)
             SELECT s.order_id, u.owner, s.step, s.to_status, s.from_status, s.reason, s.attempt_no, u.driver_id, s.at,
                    s.changed, u.has_details
             FROM ROWS FROM (json_to_recordset($2::json) AS (
                 order_id text, from_status text, to_status text, reason text, attempt_no integer, at timestamptz, step text,
                 changed text[]))
                 WITH ORDINALITY AS s (order_id, from_status, to_status, reason, attempt_no, at, step, changed, place)
             JOIN u ON u.id = s.order_id WHERE s.step IS NOT NULL ORDER BY s.place
             RETURNING seq, order_id)";

const NEW_STEPS: &str = "array(SELECT s.seq FROM s WHERE s.order_id = n.id ORDER BY s.seq)";

const NEW_MESSAGES: &str =
    "(SELECT coalesce(json_agg(json_build_object('id', m.id, 'message_id', m.message_id, 'is_claimed', m.attempts > 0) ORDER BY m.id), '[]')
          FROM m WHERE m.order_id = n.id)";

const SETTLED: &str =
    "(SELECT coalesce(json_agg(json_build_object('id', z.id, 'kind', z.kind, 'waited_s', z.waited_s)), '[]')
          FROM z WHERE z.order_id = n.id)";

const RAISED: &str =
    "(SELECT coalesce(json_agg(json_build_object('id', w.id, 'kind', w.kind, 'next_escalation_at', w.next_escalation_at) ORDER BY w.id), '[]')
          FROM w WHERE w.order_id = n.id)";

const STILL_FREE: &str = "array(SELECT p.driver_id FROM p WHERE p.order_id = n.id)";

const MATCHED: &str =
    "(SELECT coalesce(json_agg(json_build_object('id', k.id, 'received_at', k.received_at) ORDER BY k.id), '[]')
          FROM k WHERE k.order_id = n.id)";
