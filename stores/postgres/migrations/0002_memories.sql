-- What is remembered now, for people's own tools: the rows of memory, each with its changes folded in.

CREATE VIEW chatbot.memories WITH (security_invoker = true) AS
WITH said AS MATERIALIZED (
    SELECT identity, start, chatbot.as_json(line) AS e FROM chatbot.event
),
change AS (
    SELECT identity, start, e ->> 'event' AS kind, each.id, e -> 'set' AS fields, e ->> 'by' AS by
    FROM said CROSS JOIN LATERAL jsonb_array_elements_text(coalesce(e -> 'ids', jsonb_build_array(e -> 'id'))) AS each (id)
    UNION ALL
    SELECT identity, start, along.kind, each.id, NULL, e -> 'row' ->> 'id'
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
    SELECT DISTINCT ON (identity, id) identity, id, kind, by
    FROM change
    WHERE kind IN ('supersede', 'compress', 'expire', 'archive', 'delete', 'restore')
    ORDER BY identity, id, start DESC
),
memory AS (
    SELECT a.identity, a.e -> 'row' || coalesce(edited.fields, '{}') AS r, moved.kind, moved.by
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
        WHEN 'expire' THEN 'expired'
        WHEN 'archive' THEN 'archived'
        WHEN 'delete' THEN 'deleted'
        WHEN 'restore' THEN 'active'
        ELSE CASE WHEN (r ->> 'expires_at')::timestamptz <= now() THEN 'expired' ELSE coalesce(r ->> 'status', 'active') END
    END AS status,
    r ->> 'type' AS type, r ->> 'title' AS title, r ->> 'narrative' AS narrative,
    coalesce(r ->> 'visibility', 'private') AS visibility, coalesce(r ->> 'sensitivity', 'unknown') AS sensitivity,
    r ->> 'agent_id' AS agent, r ->> 'namespace' AS namespace, r ->> 'principal' AS principal,
    r ->> 'session_id' AS session, by AS superseded_by, r AS memory
FROM memory;
COMMENT ON VIEW chatbot.memories IS 'What is remembered, one row each with its status; what was erased is not there.';
