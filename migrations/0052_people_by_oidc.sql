-- People who sign in at a provider of OpenID Connect. Each sign-in makes a key whose text is thrown away: it lives as long as a
-- session can, and gives the person's name and role to what asks for them.

ALTER TABLE api_keys ADD COLUMN oidc_subject text CHECK (octet_length(oidc_subject) BETWEEN 1 AND 1020);
COMMENT ON COLUMN api_keys.oidc_subject IS 'who signed in by OpenID Connect, as the provider identifies the person; null of keys that were handed out';
-- For the sweep.
CREATE INDEX api_keys_of_people ON api_keys (created_at) WHERE oidc_subject IS NOT NULL;
