-- What became of requests for places, by the hour, for the report and for tuning thresholds; and each request that shadow mode let in.

-- Processes add what they counted once a second. A request may be counted under an hour that is over by then.
CREATE TABLE admission_counts (
    hour         timestamptz(3) NOT NULL,
    area_id      text NOT NULL,
    service_type text NOT NULL,
    source       text NOT NULL,
    verdict      text NOT NULL,
    cause        text NOT NULL,
    loyalty      text NOT NULL,
    waiting      bigint NOT NULL,
    requests     bigint NOT NULL CHECK (requests > 0),
    in_snapshot  bigint NOT NULL DEFAULT 0 CHECK (in_snapshot BETWEEN 0 AND requests),
    PRIMARY KEY (hour, area_id, service_type, source, verdict, cause, loyalty, waiting)
) WITH (fillfactor = 80);
COMMENT ON COLUMN admission_counts.area_id IS 'empty: outside of all areas';
COMMENT ON COLUMN admission_counts.source IS 'check: the advice before an order; create: its creation';
COMMENT ON COLUMN admission_counts.verdict IS 'TAKEN, BYPASSED, WOULD_REFUSE (shadow mode) or REFUSED';
COMMENT ON COLUMN admission_counts.cause IS 'threshold, disabled, forced, outside or unavailable; none of requests that were taken';
COMMENT ON COLUMN admission_counts.loyalty IS 'the known level of the customer; empty: none';
COMMENT ON COLUMN admission_counts.waiting IS 'orders that waited: exact below 50, then rounded down to 5, from 500 on to 50, and so on; -1: unknown';
COMMENT ON COLUMN admission_counts.in_snapshot IS 'how many of the requests waiting_snapshots has';

CREATE TABLE shadow_refusals (
    id            bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    at            timestamptz(3) NOT NULL,
    source        text NOT NULL,
    order_id      text,
    area_id       text NOT NULL,
    service_type  text NOT NULL,
    waiting       bigint,
    threshold     bigint NOT NULL,
    channel       text,
    loyalty_level text
);
COMMENT ON TABLE shadow_refusals IS 'requests that would have been refused but for shadow mode';
COMMENT ON COLUMN shadow_refusals.order_id IS 'the order that was created all the same; null: only its availability was asked';
COMMENT ON COLUMN shadow_refusals.waiting IS 'orders that waited; null: unknown';
CREATE INDEX shadow_refusals_by_age ON shadow_refusals (at);

CREATE VIEW audit_shadow_refusals AS
    SELECT id, at, source, order_id, area_id, service_type, waiting, threshold, channel, loyalty_level FROM shadow_refusals;
