-- Who takes part: drivers, the company's own users, and the keys that programs authenticate with.

CREATE TABLE drivers (
    id            text PRIMARY KEY CHECK (id ~ '^[A-Za-z0-9_-]{1,64}$'),
    service_types text[] NOT NULL CHECK (cardinality(service_types) > 0),
    lat           double precision NOT NULL CHECK (lat BETWEEN -90 AND 90),
    lng           double precision NOT NULL CHECK (lng BETWEEN -180 AND 180),
    available     boolean NOT NULL DEFAULT true,
    idle_since    timestamptz(3) NOT NULL DEFAULT dispatchq_now(),
    updated_at    timestamptz(3) NOT NULL DEFAULT dispatchq_now()
);
COMMENT ON COLUMN drivers.available IS 'wants work; whether an order or an offer occupies the driver is read from those';
COMMENT ON COLUMN drivers.idle_since IS 'end of the last trip: of equally near drivers the longest idle is first';
CREATE INDEX drivers_nearby ON drivers (lat, lng) WHERE available;

CREATE TABLE users (
    id         text PRIMARY KEY CHECK (id ~ '^[A-Za-z0-9_-]{1,64}$'),
    name       text NOT NULL,
    role       text NOT NULL CHECK (role IN ('dispatcher', 'support', 'operator', 'admin')),
    channel    text NOT NULL DEFAULT 'log',
    created_at timestamptz(3) NOT NULL DEFAULT dispatchq_now()
);
COMMENT ON COLUMN users.channel IS 'name of the configured channel that reaches this person';

CREATE TABLE api_keys (
    id         uuid PRIMARY KEY,
    name       text NOT NULL,
    sha256     bytea NOT NULL UNIQUE CHECK (octet_length(sha256) = 32),
    role       text NOT NULL CHECK (role IN ('producer', 'driver', 'dispatcher', 'support', 'operator', 'admin')),
    driver_id  text,
    created_at timestamptz(3) NOT NULL DEFAULT dispatchq_now(),
    revoked_at timestamptz(3),
    CHECK ((role = 'driver') = (driver_id IS NOT NULL))
);
COMMENT ON TABLE api_keys IS 'keys are random and shown once; only their SHA-256 is kept';

CREATE TABLE idempotency_keys (
    api_key_id   uuid NOT NULL,
    key          text NOT NULL CHECK (length(key) BETWEEN 1 AND 255),
    request_hash bytea NOT NULL,
    status       smallint,
    body         jsonb,
    work_id      uuid NOT NULL,
    created_at   timestamptz(3) NOT NULL DEFAULT dispatchq_now(),
    PRIMARY KEY (api_key_id, key)
);
COMMENT ON COLUMN idempotency_keys.status IS 'HTTP status of the stored answer; null while the first request still runs';
COMMENT ON COLUMN idempotency_keys.work_id IS 'what the work is done under, also when it is done again after a crash';
CREATE INDEX idempotency_keys_by_age ON idempotency_keys (created_at);
