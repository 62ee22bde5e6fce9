-- Sessions of the console: a staff key is exchanged for one, and is not kept in the browser.

CREATE TABLE console_sessions (
    id           uuid PRIMARY KEY,
    sha256       bytea NOT NULL UNIQUE CHECK (octet_length(sha256) = 32),
    key_id       uuid NOT NULL REFERENCES api_keys (id) ON DELETE CASCADE,
    role         text NOT NULL,
    created_at   timestamptz(3) NOT NULL DEFAULT dispatchq_now(),
    last_seen_at timestamptz(3) NOT NULL DEFAULT dispatchq_now(),
    ended_at     timestamptz(3)
);
COMMENT ON TABLE console_sessions IS 'who signed in to the console; the token is in the browser alone, here is its SHA-256';
COMMENT ON COLUMN console_sessions.role IS 'the role of the key then: a key whose role has changed opens no session of before';
COMMENT ON COLUMN console_sessions.last_seen_at IS 'to the minute; a page that refreshes itself does not count';
CREATE INDEX console_sessions_by_age ON console_sessions (created_at);
-- For the deletion of keys.
CREATE INDEX console_sessions_by_key ON console_sessions (key_id);
