-- Tables of chatbot. Every key begins with the identity, and so does every WHERE: identities share nothing, the tables
-- are partitioned by them here and can be distributed by them (Citus). Row-level security says the same once more: a
-- session of the database sees only the identity that it named with SET LOCAL chatbot.identity.

CREATE TABLE chatbot.session (
    identity text NOT NULL,
    id text NOT NULL,
    used_at timestamptz NOT NULL,
    begun_at timestamptz NOT NULL DEFAULT now(),
    is_published boolean NOT NULL DEFAULT false,
    record text NOT NULL,
    PRIMARY KEY (identity, id)
) PARTITION BY HASH (identity);
COMMENT ON TABLE chatbot.session IS 'One conversation each; a draft until it is published.';
COMMENT ON COLUMN chatbot.session.record IS 'JSON as in session.json; the view chatbot.sessions has its fields.';

CREATE TABLE chatbot.message (
    identity text NOT NULL,
    session text NOT NULL,
    n bigint NOT NULL,
    role text NOT NULL,
    content text NOT NULL,
    at timestamptz NOT NULL,
    PRIMARY KEY (identity, session, n)
) PARTITION BY HASH (identity);
COMMENT ON TABLE chatbot.message IS 'Transcripts, in the order of n.';
COMMENT ON COLUMN chatbot.message.content IS 'Text; DLE n stands for NUL and DLE p for DLE (U+0010).';

CREATE TABLE chatbot.key_value (
    identity text NOT NULL,
    session text NOT NULL,
    key text NOT NULL,
    n bigint NOT NULL,
    value text NOT NULL,
    at timestamptz NOT NULL,
    PRIMARY KEY (identity, session, key)
) PARTITION BY HASH (identity);
COMMENT ON TABLE chatbot.key_value IS 'Key-value entries of a session; the highest n was set last.';

CREATE TABLE chatbot.head (
    identity text NOT NULL,
    session text NOT NULL,
    name text NOT NULL,
    generation bigint NOT NULL,
    next bigint NOT NULL,
    PRIMARY KEY (identity, session, name)
) PARTITION BY HASH (identity);
COMMENT ON TABLE chatbot.head IS 'Where the next row goes, for whatever keeps an order; its lock is the right to write.';
COMMENT ON COLUMN chatbot.head.generation IS 'Another number after rows were rewritten, so that readers begin again.';

CREATE TABLE chatbot.line (
    identity text NOT NULL,
    session text NOT NULL,
    name text NOT NULL,
    n bigint NOT NULL,
    record text NOT NULL,
    PRIMARY KEY (identity, session, name, n)
) PARTITION BY HASH (identity);
COMMENT ON TABLE chatbot.line IS 'Receipts, bills and other records, as JSON. The session is empty for those of the identity.';

CREATE TABLE chatbot.document (
    identity text NOT NULL,
    session text NOT NULL,
    name text NOT NULL,
    version bigint NOT NULL,
    value bytea,
    PRIMARY KEY (identity, session, name)
) PARTITION BY HASH (identity);
COMMENT ON TABLE chatbot.document IS 'Small values that are replaced as a whole: tokens, reservations, state of maintenance.';

CREATE TABLE chatbot.lease (
    identity text NOT NULL,
    session text NOT NULL,
    name text NOT NULL,
    holder text NOT NULL,
    until timestamptz NOT NULL,
    PRIMARY KEY (identity, session, name)
) PARTITION BY HASH (identity);
COMMENT ON TABLE chatbot.lease IS 'The right to do something alone, such as a turn, until it lapses by the clock of the database.';

CREATE TABLE chatbot.event (
    identity text NOT NULL,
    start bigint NOT NULL,
    line text NOT NULL,
    PRIMARY KEY (identity, start)
) PARTITION BY HASH (identity);
COMMENT ON TABLE chatbot.event IS 'Events of memory, as in observations.jsonl; start counts the bytes before the line.';

CREATE TABLE chatbot.piece (
    identity text NOT NULL,
    shelf text NOT NULL,
    name text NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (identity, shelf, name)
) PARTITION BY HASH (identity);
COMMENT ON TABLE chatbot.piece IS 'Text indexes and vectors, as arrays with checksums: caches that servers share.';

DO $$
DECLARE
    parent text;
BEGIN
    FOREACH parent IN ARRAY ARRAY['session', 'message', 'key_value', 'head', 'line', 'document', 'lease', 'event', 'piece'] LOOP
        FOR part IN 0..7 LOOP
            EXECUTE format(
                'CREATE TABLE chatbot.%I PARTITION OF chatbot.%I FOR VALUES WITH (MODULUS 8, REMAINDER %s)',
                parent || '_' || part, parent, part
            );
        END LOOP;
        EXECUTE format('ALTER TABLE chatbot.%I ENABLE ROW LEVEL SECURITY', parent);
        EXECUTE format('ALTER TABLE chatbot.%I FORCE ROW LEVEL SECURITY', parent);
        EXECUTE format(
            'CREATE POLICY one_identity ON chatbot.%I USING (identity = current_setting(''chatbot.identity'', true))',
            parent
        );
    END LOOP;
END
$$;

CREATE INDEX session_by_use ON chatbot.session (identity, used_at DESC, id DESC) WHERE is_published;
CREATE INDEX session_drafts ON chatbot.session (identity, begun_at) WHERE NOT is_published;

CREATE FUNCTION chatbot.as_json(record text) RETURNS jsonb LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT replace(record, '\u0000', '\ufffd')::jsonb
$$;
COMMENT ON FUNCTION chatbot.as_json IS 'A record as jsonb, which keeps no NUL.';

CREATE VIEW chatbot.sessions WITH (security_invoker = true) AS
SELECT
    identity, id, r ->> 'title' AS title, r ->> 'agent_id' AS agent, r ->> 'namespace' AS namespace,
    r ->> 'principal' AS principal, (r ->> 'created_at')::timestamptz AS created_at, used_at,
    (r ->> 'archived_at')::timestamptz AS archived_at, (r ->> 'expires_at')::timestamptz AS expires_at,
    r ->> 'parent' AS parent
FROM (SELECT identity, id, used_at, chatbot.as_json(record) AS r FROM chatbot.session WHERE is_published) AS s;
COMMENT ON VIEW chatbot.sessions IS 'Conversations, with their titles and times.';

CREATE VIEW chatbot.messages WITH (security_invoker = true) AS
SELECT identity, session, n, role, content, at FROM chatbot.message;
COMMENT ON VIEW chatbot.messages IS 'What was said, in the order of session and n.';

CREATE VIEW chatbot.memory_events WITH (security_invoker = true) AS
SELECT
    identity, start, e ->> 'event' AS kind, (e ->> 'at')::timestamptz AS at, e -> 'row' ->> 'id' AS id,
    e -> 'row' ->> 'type' AS type, e -> 'row' ->> 'title' AS title, e -> 'row' ->> 'narrative' AS narrative, e AS event
FROM (SELECT identity, start, chatbot.as_json(line) AS e FROM chatbot.event) AS j;
COMMENT ON VIEW chatbot.memory_events IS 'Every change of memory, oldest first by start.';

CREATE VIEW chatbot.cost_by_day WITH (security_invoker = true) AS
SELECT
    identity, (r ->> 'at')::timestamptz::date AS day, r ->> 'model' AS model, r ->> 'purpose' AS purpose,
    count(*) AS calls, sum((r ->> 'input_tokens')::bigint) AS input_tokens,
    sum((r ->> 'output_tokens')::bigint) AS output_tokens, sum((r ->> 'cost_usd')::numeric) AS cost_usd
FROM (
    SELECT identity, chatbot.as_json(record) AS r FROM chatbot.line WHERE session = '' AND name = 'usage'
) AS u
GROUP BY 1, 2, 3, 4;
COMMENT ON VIEW chatbot.cost_by_day IS 'What model calls have cost, by day (UTC), model and purpose.';
