-- use sign-in link of driver
-- Removes the link $1, and opens the session $2 with the token's hash $3 for the address $4, valid for $5 seconds. Of two
-- statements with one link, the second one finds no row after the first one has committed. The lock makes the disabling of
-- the driver wait, which then removes the session.
WITH used AS (
    DELETE FROM driver_sign_in_links WHERE sha256 = $1 RETURNING driver_id, expires_at),
allowed AS (
    SELECT d.id FROM used u JOIN drivers d ON d.id = u.driver_id
    WHERE u.expires_at > dispatchq_now() AND d.disabled_at IS NULL
    FOR SHARE OF d)
INSERT INTO driver_sessions (id, sha256, driver_id, address, expires_at)
SELECT $2, $3, id, $4::text::inet, dispatchq_now() + $5 * interval '1 second' FROM allowed
