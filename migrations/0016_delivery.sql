-- An offer whose receiver does not want it, of one channel. Of two channels that fail at the same moment each sees what the
-- other has marked, so the later one withdraws the offer.
ALTER TABLE outbox ADD COLUMN unreachable boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN outbox.unreachable IS 'an offer whose receiver does not want it; whether another channel still may is asked afterwards';
COMMENT ON COLUMN outbox.attempts IS 'tries claimed: a try counts before anything is sent';
COMMENT ON TABLE outbox_attempts IS 'delivery log: one row per try, written before it is sent; error null when it was delivered';

-- An alert that is not told again because its job died. It stays due, and goes on when the job is requeued.
ALTER TABLE alerts ADD COLUMN gave_up_at timestamptz(3);
COMMENT ON COLUMN alerts.gave_up_at IS 'when the job that tells it again was found dead; null again once it is requeued';
