-- Drivers, staff, API keys, Idempotency-Keys, sessions of the console and of the driver page, saved filters, records of staff
-- actions, and producers in SQL.

-- Returns whether these labels may be the skills of a driver or the requirements of an order. crates/model/src/skills.rs has the
-- same rule.
CREATE FUNCTION dispatchq_are_skills(labels text[]) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT cardinality(labels) <= 16
       AND NOT EXISTS (SELECT FROM unnest(labels) AS l WHERE (l COLLATE "C" ~ '^[a-z0-9][a-z0-9_-]{0,31}$') IS NOT TRUE)
$$;

CREATE TABLE drivers (
    id            text PRIMARY KEY CHECK (id ~ '^[A-Za-z0-9_-]{1,64}$'),
    name          text CHECK (char_length(name) BETWEEN 1 AND 80),
    service_types text[] NOT NULL CHECK (cardinality(service_types) > 0),
    skills        text[] NOT NULL DEFAULT '{}' CHECK (dispatchq_are_skills(skills)),
    lat           double precision NOT NULL CHECK (lat BETWEEN -90 AND 90),
    lng           double precision NOT NULL CHECK (lng BETWEEN -180 AND 180),
    located_at    timestamptz(3) DEFAULT dispatchq_now(),
    phone         text CHECK (phone ~ '^\+[1-9][0-9]{6,14}$'),
    available     boolean NOT NULL DEFAULT true,
    idle_since    timestamptz(3) NOT NULL DEFAULT dispatchq_now(),
    updated_at    timestamptz(3) NOT NULL DEFAULT dispatchq_now(),
    disabled_at   timestamptz(3),
    CHECK (disabled_at IS NULL OR NOT available)
);
COMMENT ON COLUMN drivers.name IS 'name for people; never logged';
COMMENT ON COLUMN drivers.skills IS 'labels; the driver is asked only for orders that require none that is missing here';
COMMENT ON COLUMN drivers.located_at IS 'time of the last report of lat and lng; null: unknown';
COMMENT ON COLUMN drivers.phone IS 'number in E.164 form, for offers by phone call; never logged';
COMMENT ON COLUMN drivers.available IS 'whether the driver wants work; orders and offers show whether the driver is occupied';
COMMENT ON COLUMN drivers.idle_since IS 'end of the last trip; on equal scores, the driver with the longest idle time comes first';
COMMENT ON COLUMN drivers.disabled_at IS 'when the driver was disabled; a disabled driver gets no offers, and the driver''s keys are refused';
CREATE INDEX drivers_nearby ON drivers (lat, lng) WHERE available;

CREATE TABLE users (
    id          text PRIMARY KEY CHECK (id ~ '^[A-Za-z0-9_-]{1,64}$'),
    name        text NOT NULL,
    role        text NOT NULL CHECK (role IN ('dispatcher', 'support', 'operator', 'admin')),
    channel     text NOT NULL DEFAULT 'log',
    email       text CHECK (octet_length(email) BETWEEN 3 AND 254),
    phone       text CHECK (phone ~ '^\+[1-9][0-9]{6,14}$'),
    created_at  timestamptz(3) NOT NULL DEFAULT dispatchq_now(),
    disabled_at timestamptz(3),
    scope       jsonb CHECK (jsonb_typeof(scope) = 'object')
);
COMMENT ON COLUMN users.channel IS 'name of the configured channel for messages to this person';
COMMENT ON COLUMN users.email IS 'address for e-mail channels; null: the channel''s own addresses';
COMMENT ON COLUMN users.phone IS 'number in E.164 form, for channels that make phone calls';
COMMENT ON COLUMN users.disabled_at IS 'when this person was disabled; a disabled person gets no messages';
COMMENT ON COLUMN users.scope IS 'orders that this person may read after a sign-in by OpenID Connect; null: all';
-- For people who signed in: the provider''s name of a person may be an address.
CREATE INDEX users_by_email ON users (lower(email)) WHERE email IS NOT NULL;

-- Names of producers and keys.

-- Returns the form in which an API key stores a name: NFKC, trimmed, with single blanks, without invisible characters.
CREATE FUNCTION dispatchq_key_name(name text) RETURNS text LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT btrim(regexp_replace(regexp_replace(normalize(name, NFKC),
        '[\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ue000-\uf8ff\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]',
        '', 'g'), '[ \u1680]+', ' ', 'g'))
$$;
COMMENT ON FUNCTION dispatchq_key_name IS 'the form in which an API key stores a name';

-- Returns the form used to compare names, for keys that are inserted without it. `model::key_name` folds more letters.
CREATE FUNCTION dispatchq_name_key(name text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT lower(btrim(regexp_replace(
        regexp_replace(normalize(name, NFKC), '[\u00AD\u061C\u200B-\u200F\u202A-\u202E\u2060-\u2069\uFEFF]', '', 'g'),
        '\s+', ' ', 'g')))
$$;

-- Several keys may have the same name while a new key replaces an old one.
CREATE TABLE api_keys (
    id            uuid PRIMARY KEY,
    name          text NOT NULL,
    name_key      text,
    holder_id     uuid,
    sha256        bytea NOT NULL UNIQUE CHECK (octet_length(sha256) = 32),
    role          text NOT NULL CHECK (role IN (
        'producer', 'driver', 'viewer', 'dispatcher', 'support', 'operator', 'admin')),
    driver_id     text,
    oidc_subject  text CHECK (octet_length(oidc_subject) BETWEEN 1 AND 1020),
    created_at    timestamptz(3) NOT NULL DEFAULT dispatchq_now(),
    last_used_at  timestamptz(3),
    expires_at    timestamptz(3),
    superseded_at timestamptz(3),
    revoked_at    timestamptz(3),
    scope         jsonb CHECK (jsonb_typeof(scope) = 'object'),
    CHECK ((role = 'driver') = (driver_id IS NOT NULL)),
    CHECK (scope IS NULL OR role NOT IN ('producer', 'driver'))
);
COMMENT ON TABLE api_keys IS 'keys are random and shown once; only their SHA-256 is stored';
COMMENT ON COLUMN api_keys.name_key IS 'the form used to compare names: NFKC, case-insensitive';
COMMENT ON COLUMN api_keys.holder_id IS 'the same for all keys of a name and role, or of a driver; it owns the Idempotency-Keys';
COMMENT ON COLUMN api_keys.oidc_subject IS 'the identity provider''s id of a person who signed in by OpenID Connect; null for issued keys. The text of such a key is never shown, and the key expires with the session';
COMMENT ON COLUMN api_keys.last_used_at IS 'updated at most once a minute';
COMMENT ON COLUMN api_keys.superseded_at IS 'when a new key with the same name replaced this one; this key works until it expires or is revoked';
COMMENT ON COLUMN api_keys.scope IS 'orders that the holder may read, as {"areas": [...], "service_types": [...], "partners": [...], "producers": [...]}; an absent list means all; null: all orders';
CREATE UNIQUE INDEX api_keys_one_per_name ON api_keys (name) WHERE revoked_at IS NULL AND superseded_at IS NULL;
CREATE UNIQUE INDEX api_keys_one_per_look ON api_keys (name_key) WHERE revoked_at IS NULL AND superseded_at IS NULL;
CREATE INDEX api_keys_by_name ON api_keys (name_key, role);
CREATE INDEX api_keys_by_driver ON api_keys (driver_id) WHERE driver_id IS NOT NULL;
-- For the sweep of keys that sign-ins created.
CREATE INDEX api_keys_of_people ON api_keys (created_at) WHERE oidc_subject IS NOT NULL;

-- Sets `name_key` and `holder_id` of a new key. After a rename it sets only `name_key`, so that an erased name does not remain
-- there.
CREATE FUNCTION dispatchq_complete_key() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        NEW.name_key := dispatchq_name_key(NEW.name);
        RETURN NEW;
    END IF;
    NEW.name_key := coalesce(NEW.name_key, dispatchq_name_key(NEW.name));
    IF NEW.driver_id IS NULL THEN
        NEW.holder_id := (SELECT k.holder_id FROM api_keys k
                          WHERE k.name_key = NEW.name_key AND k.role = NEW.role ORDER BY k.created_at DESC LIMIT 1);
    ELSE
        NEW.holder_id := (SELECT k.holder_id FROM api_keys k
                          WHERE k.driver_id = NEW.driver_id ORDER BY k.created_at DESC LIMIT 1);
    END IF;
    NEW.holder_id := coalesce(NEW.holder_id, NEW.id);
    RETURN NEW;
END $$;
CREATE TRIGGER complete_new BEFORE INSERT ON api_keys FOR EACH ROW EXECUTE FUNCTION dispatchq_complete_key();
CREATE TRIGGER complete_renamed BEFORE UPDATE OF name ON api_keys
    FOR EACH ROW WHEN (NEW.name <> OLD.name) EXECUTE FUNCTION dispatchq_complete_key();

-- Keys that are valid now. A process that caches a key stops accepting it at `expires_at`. The key of a person who signed in by
-- OpenID Connect has the scope of the user with this id or address, in any case. If several users match, one with a scope decides.
CREATE VIEW valid_api_keys AS
    SELECT id, name, sha256, role, driver_id, created_at, revoked_at, expires_at, holder_id,
           CASE WHEN k.oidc_subject IS NULL THEN k.scope
                ELSE (SELECT u.scope FROM users u WHERE lower(u.id) = lower(k.name) OR lower(u.email) = lower(k.name)
                      ORDER BY u.scope IS NULL, u.id LIMIT 1) END AS scope
    FROM api_keys k
    WHERE revoked_at IS NULL
      AND (expires_at IS NULL OR expires_at > dispatchq_now())
      AND NOT EXISTS (SELECT 1 FROM drivers d WHERE d.id = k.driver_id AND d.disabled_at IS NOT NULL);

-- Number of the latest change of a key, or of a driver's `disabled_at`. Processes cache keys and read them again when it changes.
CREATE TABLE key_revision (
    one    boolean PRIMARY KEY DEFAULT true CHECK (one),
    number bigint NOT NULL DEFAULT 1
);
INSERT INTO key_revision DEFAULT VALUES;
CREATE FUNCTION dispatchq_keys_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE key_revision SET number = number + 1;
    RETURN NULL;
END $$;
-- The trigger ignores `last_used_at`, which changes often. It also ignores new keys, because no process has cached them yet.
CREATE TRIGGER changed AFTER UPDATE OF id, name, sha256, role, driver_id, expires_at, revoked_at, scope OR DELETE ON api_keys
    FOR EACH STATEMENT EXECUTE FUNCTION dispatchq_keys_changed();
CREATE TRIGGER keys_changed AFTER UPDATE OF id, disabled_at OR DELETE ON drivers
    FOR EACH STATEMENT EXECUTE FUNCTION dispatchq_keys_changed();
-- A user's scope is that of the person's keys.
CREATE TRIGGER keys_changed AFTER INSERT OR UPDATE OF id, email, scope OR DELETE ON users
    FOR EACH STATEMENT EXECUTE FUNCTION dispatchq_keys_changed();

CREATE TABLE idempotency_keys (
    holder_id    uuid NOT NULL,
    key          text NOT NULL CHECK (length(key) BETWEEN 1 AND 255),
    request_hash bytea NOT NULL,
    status       smallint,
    body         jsonb,
    work_id      uuid NOT NULL,
    id_prefix    text NOT NULL DEFAULT '',
    created_at   timestamptz(3) NOT NULL DEFAULT dispatchq_now(),
    PRIMARY KEY (holder_id, key)
);
COMMENT ON COLUMN idempotency_keys.holder_id IS 'api_keys.holder_id of the caller; it stays the same when a key is rotated';
COMMENT ON COLUMN idempotency_keys.status IS 'HTTP status of the stored answer; null while the first request is running';
COMMENT ON COLUMN idempotency_keys.body IS 'the stored answer; of a creation only the values that later changes of the order replace';
COMMENT ON COLUMN idempotency_keys.work_id IS 'id of the work; it stays the same when the work is repeated after a crash';
COMMENT ON COLUMN idempotency_keys.id_prefix IS 'ids.prefix of the process that claimed the key; repeated work then generates the same order id after a change of the setting';
CREATE INDEX idempotency_keys_by_age ON idempotency_keys (created_at);

-- Sessions of the console. The browser stores the token of a session, and not the staff key.
CREATE TABLE console_sessions (
    id           uuid PRIMARY KEY,
    sha256       bytea NOT NULL UNIQUE CHECK (octet_length(sha256) = 32),
    key_id       uuid NOT NULL REFERENCES api_keys (id) ON DELETE CASCADE,
    role         text NOT NULL,
    address      inet,
    created_at   timestamptz(3) NOT NULL DEFAULT dispatchq_now(),
    last_seen_at timestamptz(3) NOT NULL DEFAULT dispatchq_now(),
    ended_at     timestamptz(3)
);
COMMENT ON TABLE console_sessions IS 'sign-ins to the console; only the browser has the token, this table has its SHA-256';
COMMENT ON COLUMN console_sessions.role IS 'role of the key at sign-in; a session ends when the key''s role changes';
COMMENT ON COLUMN console_sessions.address IS 'client address of the sign-in';
COMMENT ON COLUMN console_sessions.last_seen_at IS 'last request of the person, updated at most once a minute; automatic refreshes of a page do not count';
CREATE INDEX console_sessions_by_age ON console_sessions (created_at);
-- Used when a key is deleted.
CREATE INDEX console_sessions_by_key ON console_sessions (key_id);

-- Filters that staff saved on the page of orders. A filter may contain ids of customers and drivers, so their erasure removes it.
CREATE TABLE saved_filters (
    person text NOT NULL CHECK (person <> ''),
    name   text NOT NULL CHECK (char_length(name) BETWEEN 1 AND 60),
    slot   smallint NOT NULL CHECK (slot BETWEEN 1 AND 20),
    filter jsonb NOT NULL CHECK (jsonb_typeof(filter) = 'object' AND octet_length(filter::text) <= 8000),
    PRIMARY KEY (person, name),
    UNIQUE (person, slot)
);
COMMENT ON COLUMN saved_filters.person IS 'name of the person''s key; it stays the same when the key is rotated';
COMMENT ON COLUMN saved_filters.slot IS 'a person''s filters have different slots, which enforces their maximum';
COMMENT ON COLUMN saved_filters.filter IS 'values by the names of their fields';

-- One-time codes with which drivers sign in to the driver page. A sign-in removes the row of its code.
CREATE TABLE driver_sign_in_links (
    sha256     bytea PRIMARY KEY CHECK (octet_length(sha256) = 32),
    driver_id  text NOT NULL REFERENCES drivers (id) ON DELETE CASCADE,
    expires_at timestamptz(3) NOT NULL
);
COMMENT ON TABLE driver_sign_in_links IS 'unused sign-in codes of drivers; only their SHA-256 is stored';
CREATE INDEX driver_sign_in_links_by_driver ON driver_sign_in_links (driver_id);
CREATE INDEX driver_sign_in_links_by_age ON driver_sign_in_links (expires_at);

-- Sessions of the driver page. Disabling or removing a driver removes the driver's sessions.
CREATE TABLE driver_sessions (
    id         uuid PRIMARY KEY,
    sha256     bytea NOT NULL UNIQUE CHECK (octet_length(sha256) = 32),
    driver_id  text NOT NULL REFERENCES drivers (id) ON DELETE CASCADE,
    address    inet,
    created_at timestamptz(3) NOT NULL DEFAULT dispatchq_now(),
    expires_at timestamptz(3) NOT NULL
);
COMMENT ON TABLE driver_sessions IS 'sign-ins to the driver page; only the browser has the token, this table has its SHA-256';
COMMENT ON COLUMN driver_sessions.address IS 'client address of the sign-in';
CREATE INDEX driver_sessions_by_driver ON driver_sessions (driver_id);
CREATE INDEX driver_sessions_by_age ON driver_sessions (expires_at);

-- Browsers that get push messages about offers. They end with their session.
CREATE TABLE driver_push_subscriptions (
    session_id uuid PRIMARY KEY REFERENCES driver_sessions (id) ON DELETE CASCADE,
    endpoint   text NOT NULL UNIQUE CHECK (octet_length(endpoint) <= 2048),
    p256dh     bytea NOT NULL CHECK (octet_length(p256dh) = 65),
    auth       bytea NOT NULL CHECK (octet_length(auth) = 16),
    created_at timestamptz(3) NOT NULL DEFAULT dispatchq_now()
);
COMMENT ON COLUMN driver_push_subscriptions.endpoint IS 'address at the push service of the browser''s vendor';
COMMENT ON COLUMN driver_push_subscriptions.p256dh IS 'public key of the browser';
COMMENT ON COLUMN driver_push_subscriptions.auth IS 'secret of the browser, with which messages are encrypted';

-- Records of staff. deploy/postgres/roles.sql revokes UPDATE and DELETE on them from `dispatchq_run`.

CREATE TABLE staff_actions (
    id        bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    at        timestamptz(3) NOT NULL DEFAULT dispatchq_now(),
    actor     text NOT NULL,
    key_id    uuid,
    action    text NOT NULL CHECK (action ~ '^[A-Z_]{1,32}$'),
    subject   text NOT NULL CHECK (octet_length(subject) BETWEEN 1 AND 256),
    reason    text CHECK (octet_length(reason) BETWEEN 1 AND 2000),
    old_value jsonb,
    new_value jsonb
);
COMMENT ON TABLE staff_actions IS 'changes by staff to queues, drivers, keys, users and settings; order_events has the changes of orders';
COMMENT ON COLUMN staff_actions.subject IS 'what was changed: its id or name';
COMMENT ON COLUMN staff_actions.old_value IS 'value before the change; null if there was none';
COMMENT ON COLUMN staff_actions.new_value IS 'value after the change; null if it no longer exists';
CREATE INDEX staff_actions_by_age ON staff_actions (at);
-- For erasures. The subject is an order, or one of its jobs, such as `dispatch:ORD-1:1`.
CREATE INDEX staff_actions_by_order ON staff_actions
    ((CASE WHEN strpos(subject, ':') > 0 THEN split_part(subject, ':', 2) ELSE subject END));

-- Requests of staff. A row is written before the request is processed. Other tables record the change and its reason.
CREATE TABLE staff_requests (
    id      bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    at      timestamptz(3) NOT NULL DEFAULT dispatchq_now(),
    key_id  uuid NOT NULL,
    address inet NOT NULL,
    request text NOT NULL CHECK (octet_length(request) BETWEEN 1 AND 256)
);
COMMENT ON TABLE staff_requests IS 'client addresses of requests for a change with a staff key';
COMMENT ON COLUMN staff_requests.request IS 'method and route, such as POST /api/v1/orders/{id}/hold; without the ids and names of the path';
CREATE INDEX staff_requests_by_key ON staff_requests (key_id, at);
CREATE INDEX staff_requests_by_age ON staff_requests (at);

-- Producers that create orders in SQL.
CREATE TABLE sql_producers (
    login text NOT NULL CHECK (octet_length(login) BETWEEN 1 AND 63),
    owner text NOT NULL CHECK (octet_length(owner) BETWEEN 1 AND 256),
    PRIMARY KEY (login, owner),
    CONSTRAINT sql_producers_owner_is_key_name CHECK (owner = dispatchq_key_name(owner))
);
COMMENT ON TABLE sql_producers IS 'producers for which a Postgres login may create orders with dispatchq_create_order()';
COMMENT ON COLUMN sql_producers.owner IS 'name of the producer, as its API key stores it';
