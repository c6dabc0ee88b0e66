-- Tables of chatbot. Every key begins with the identity, and so does every WHERE: identities share nothing, the tables
-- are partitioned by them here and can be distributed by them (Citus). Row-level security says the same once more: a
-- session of the database sees only the identity that it named with SET LOCAL chatbot.identity.

CREATE SCHEMA IF NOT EXISTS chatbot;

CREATE TABLE chatbot.version (number integer PRIMARY KEY);
COMMENT ON TABLE chatbot.version IS 'The version of these tables.';

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
            -- without a policy: its rows are only reached through the table that has one, whatever a role was granted
            EXECUTE format('ALTER TABLE chatbot.%I ENABLE ROW LEVEL SECURITY', parent || '_' || part);
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

CREATE OR REPLACE FUNCTION chatbot.as_json(record text) RETURNS jsonb LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT replace(record, '\u0000', '\ufffd')::jsonb
$$;
COMMENT ON FUNCTION chatbot.as_json IS 'A record as jsonb, which keeps no NUL.';

CREATE OR REPLACE VIEW chatbot.sessions WITH (security_invoker = true) AS
SELECT
    identity, id, r ->> 'title' AS title, r ->> 'agent_id' AS agent, r ->> 'namespace' AS namespace,
    r ->> 'principal' AS principal, (r ->> 'created_at')::timestamptz AS created_at, used_at,
    (r ->> 'archived_at')::timestamptz AS archived_at, (r ->> 'expires_at')::timestamptz AS expires_at,
    r ->> 'parent' AS parent
FROM (SELECT identity, id, used_at, chatbot.as_json(record) AS r FROM chatbot.session WHERE is_published) AS s;
COMMENT ON VIEW chatbot.sessions IS 'Conversations, with their titles and times.';

CREATE OR REPLACE VIEW chatbot.messages WITH (security_invoker = true) AS
SELECT identity, session, n, role, content, at FROM chatbot.message;
COMMENT ON VIEW chatbot.messages IS 'What was said, in the order of session and n.';

CREATE OR REPLACE VIEW chatbot.memory_events WITH (security_invoker = true) AS
SELECT
    identity, start, e ->> 'event' AS kind, (e ->> 'at')::timestamptz AS at,
    coalesce(e -> 'row' ->> 'id', e ->> 'id') AS id,
    e -> 'row' ->> 'type' AS type, e -> 'row' ->> 'title' AS title, e -> 'row' ->> 'narrative' AS narrative, e AS event
FROM (SELECT identity, start, chatbot.as_json(line) AS e FROM chatbot.event) AS j;
COMMENT ON TABLE chatbot.event IS 'Events of memory, as in observations.jsonl; start grows from line to line.';
COMMENT ON VIEW chatbot.memory_events IS 'Every change of memory, oldest first by start.';

CREATE OR REPLACE VIEW chatbot.cost_by_day WITH (security_invoker = true) AS
SELECT
    identity, (r ->> 'at')::timestamptz::date AS day, r ->> 'model' AS model, r ->> 'purpose' AS purpose,
    count(*) AS calls, sum((r ->> 'input_tokens')::bigint) AS input_tokens,
    sum((r ->> 'output_tokens')::bigint) AS output_tokens, sum((r ->> 'cost_usd')::numeric) AS cost_usd
FROM (
    SELECT identity, chatbot.as_json(record) AS r FROM chatbot.line WHERE session = '' AND name = 'usage'
) AS u
GROUP BY 1, 2, 3, 4;
COMMENT ON VIEW chatbot.cost_by_day IS 'What model calls have cost, by day (UTC), model and purpose.';

-- What is remembered now, for people's own tools: the rows of memory, each with its changes folded in.

CREATE OR REPLACE VIEW chatbot.memories WITH (security_invoker = true) AS
WITH said AS MATERIALIZED (
    SELECT identity, start, chatbot.as_json(line) AS e FROM chatbot.event
),
change AS (
    SELECT identity, start, e ->> 'event' AS kind, each.id, e -> 'set' AS fields, e ->> 'by' AS by, e ->> 'at' AS at
    FROM said CROSS JOIN LATERAL jsonb_array_elements_text(coalesce(e -> 'ids', jsonb_build_array(e -> 'id'))) AS each (id)
    UNION ALL
    SELECT identity, start, along.kind, each.id, NULL, e -> 'row' ->> 'id', e ->> 'at'
    FROM said
    CROSS JOIN LATERAL (VALUES
        ('compress', e -> 'compresses'), ('supersede', jsonb_build_array(e -> 'supersedes')),
        ('delete', jsonb_build_array(e -> 'forgets'))
    ) AS along (kind, ids)
    CROSS JOIN LATERAL jsonb_array_elements_text(coalesce(along.ids, '[]')) AS each (id)
    WHERE each.id IS NOT NULL
),
edited AS (
    SELECT identity, id, jsonb_object_agg(field.key, field.value ORDER BY start) AS fields
    FROM change CROSS JOIN LATERAL jsonb_each(coalesce(fields, '{}')) AS field
    WHERE kind IN ('update', 'tighten', 'mention')
    GROUP BY identity, id
),
moved AS (
    SELECT DISTINCT ON (identity, id) identity, id, kind, by, at::timestamptz AS at
    FROM change
    WHERE kind IN ('supersede', 'compress', 'archive', 'delete', 'restore')
    ORDER BY identity, id, start DESC
),
memory AS (
    SELECT a.identity, a.e -> 'row' || coalesce(edited.fields, '{}') AS r, moved.kind, moved.by, moved.at
    FROM said AS a
    LEFT JOIN edited ON edited.identity = a.identity AND edited.id = a.e -> 'row' ->> 'id'
    LEFT JOIN moved ON moved.identity = a.identity AND moved.id = a.e -> 'row' ->> 'id'
    WHERE jsonb_typeof(a.e -> 'row') = 'object'
)
SELECT
    identity, r ->> 'id' AS id, (r ->> 'created_at')::timestamptz AS created_at,
    CASE kind
        WHEN 'supersede' THEN 'superseded'
        WHEN 'compress' THEN 'compressed'
        WHEN 'archive' THEN 'archived'
        WHEN 'delete' THEN 'deleted'
        ELSE CASE -- restoring ends an expiry that has passed
            WHEN (r ->> 'expires_at')::timestamptz BETWEEN coalesce(at, '-infinity') AND now() THEN 'expired'
            WHEN kind = 'restore' THEN 'active'
            ELSE coalesce(r ->> 'status', 'active')
        END
    END AS status,
    r ->> 'type' AS type, r ->> 'title' AS title, r ->> 'narrative' AS narrative,
    coalesce(r ->> 'visibility', 'private') AS visibility, coalesce(r ->> 'sensitivity', 'unknown') AS sensitivity,
    r ->> 'agent_id' AS agent, r ->> 'namespace' AS namespace, r ->> 'principal' AS principal,
    r ->> 'session_id' AS session, by AS superseded_by, r AS memory
FROM memory;
COMMENT ON VIEW chatbot.memories IS 'What is remembered, one row each with its status; what was erased is not there.';
