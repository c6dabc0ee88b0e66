"""Every statement on the tables. Each names the identity wherever it names a table, as `tests/stores` checks.

`%(identity)s` is filled in for each. Only rows are locked: no advisory locks, and nothing that spans two identities.
"""

from typing import LiteralString

BEYOND_ALL = 2**62
"""Greater than any place, number and count of rows: for a statement without a limit."""

ACT = """
SELECT set_config('chatbot.identity', %(identity)s, true), set_config('synchronous_commit', %(commit)s, true),
    set_config('lock_timeout', %(longest_wait)s, true)
"""
"""The first statement of each transaction: sets its identity and durability."""

_THERE = """
    SELECT 1 WHERE %(session)s::text = '' UNION ALL SELECT 1 FROM (
        SELECT FROM chatbot.session WHERE identity = %(identity)s AND id = %(session)s FOR KEY SHARE
    ) AS locked
"""
"""One row if the place is there: the identity's own, or that of a session, which is locked."""
_HEAD = """
    INSERT INTO chatbot.head AS h (identity, session, name, generation, next)
    SELECT %(identity)s, %(session)s, %(name)s, %(generation)s, %(count)s FROM there
    ON CONFLICT (identity, session, name) DO UPDATE SET next = h.next + excluded.next WHERE h.identity = %(identity)s
    RETURNING h.generation, h.next
"""
LOCK_LINES = f"WITH there AS ({_THERE}) {_HEAD}"
APPEND = f"""
WITH there AS ({_THERE}), head AS ({_HEAD})
INSERT INTO chatbot.line (identity, session, name, n, record)
SELECT %(identity)s, %(session)s, %(name)s, head.next - %(count)s + r.number, r.record
FROM head, unnest(%(records)s::text[]) WITH ORDINALITY AS r (record, number)
"""
_LOOKED_AT = 1_000
APPEND_MISSING = f"""{APPEND}
WHERE NOT EXISTS (
    SELECT FROM chatbot.line AS l
    WHERE l.identity = %(identity)s AND l.session = %(session)s AND l.name = %(name)s
        AND l.n > head.next - {_LOOKED_AT} AND l.record = r.record
)
"""
"""Append records that are not among the last ones: after `LOCK_LINES`, as it must see what others have committed."""
_NEXT = """
    UPDATE chatbot.head SET next = next + 1
    WHERE identity = %(identity)s AND session = %(session)s AND name = %(name)s RETURNING next
"""
ADD_LINE = f"""
WITH head AS ({_NEXT})
INSERT INTO chatbot.line (identity, session, name, n, record)
SELECT %(identity)s, %(session)s, %(name)s, head.next, %(record)s FROM head
"""
"""Append to existing lines; a deleted session has none, because its row of `head` is deleted before its parts."""

RENEW_GENERATION = """
UPDATE chatbot.head SET generation = %(generation)s
WHERE identity = %(identity)s AND session = %(session)s AND name = %(name)s
"""
LINES_BEFORE = """
SELECT n, record FROM chatbot.line
WHERE identity = %(identity)s AND session = %(session)s AND name = %(name)s AND n < %(before)s
ORDER BY n DESC LIMIT %(limit)s
"""
LINES_SINCE = """
SELECT h.generation, h.next, l.n, l.record FROM chatbot.head AS h
LEFT JOIN chatbot.line AS l ON l.identity = %(identity)s AND l.session = h.session AND l.name = h.name
    AND l.n > CASE WHEN h.generation = %(generation)s AND h.next >= %(n)s THEN %(n)s ELSE 0 END
WHERE h.identity = %(identity)s AND h.session = %(session)s AND h.name = %(name)s
ORDER BY l.n LIMIT %(limit)s
"""
CHANGE_LINE = """
UPDATE chatbot.line SET record = %(record)s
WHERE identity = %(identity)s AND session = %(session)s AND name = %(name)s AND n = %(n)s
"""
DROP_LINES = """
DELETE FROM chatbot.line
WHERE identity = %(identity)s AND session = %(session)s AND name = %(name)s AND n = ANY(%(numbers)s)
"""
READ_DOCUMENT = """
SELECT version, CASE WHEN version = %(version)s THEN NULL ELSE value END FROM chatbot.document
WHERE identity = %(identity)s AND session = %(session)s AND name = %(name)s AND value IS NOT NULL
"""
LOCK_DOCUMENT = f"""
WITH there AS ({_THERE})
INSERT INTO chatbot.document AS d (identity, session, name, version)
SELECT %(identity)s, %(session)s, %(name)s, 0 FROM there
ON CONFLICT (identity, session, name) DO UPDATE SET version = d.version WHERE d.identity = %(identity)s
RETURNING value
"""
WRITE_DOCUMENT = """
UPDATE chatbot.document SET value = %(value)s, version = %(version)s
WHERE identity = %(identity)s AND session = %(session)s AND name = %(name)s
"""
SET_DOCUMENT_ASIDE = """
UPDATE chatbot.document SET name = %(aside)s
WHERE identity = %(identity)s AND session = %(session)s AND name = %(name)s AND value IS NOT NULL
"""

SIZES_OF_BLOBS = """
SELECT name, octet_length(value) FROM chatbot.document
WHERE identity = %(identity)s AND session = %(session)s AND starts_with(name, %(kind)s) AND value IS NOT NULL
"""
DROP_DOCUMENT = """
DELETE FROM chatbot.document WHERE identity = %(identity)s AND session = %(session)s AND name = %(name)s
"""

_TAKE_LEASE = """
INSERT INTO chatbot.lease AS l (identity, session, name, holder, until)
SELECT %(identity)s, %(session)s, %(name)s, %(holder)s, clock_timestamp() + make_interval(secs => %(ttl)s) FROM there
ON CONFLICT (identity, session, name) DO UPDATE SET holder = excluded.holder, until = excluded.until
    WHERE l.identity = %(identity)s AND (l.until < clock_timestamp() OR l.holder = excluded.holder)
RETURNING 1
"""
TAKE_LEASE = f"""
WITH there AS ({_THERE}), taken AS ({_TAKE_LEASE}) SELECT EXISTS (SELECT FROM there), EXISTS (SELECT FROM taken)
"""
RENEW_LEASES = """
UPDATE chatbot.lease SET until = clock_timestamp() + make_interval(secs => %(ttl)s)
WHERE identity = %(identity)s AND holder = ANY(%(holders)s) RETURNING holder
"""
RELEASE_LEASE = "DELETE FROM chatbot.lease WHERE identity = %(identity)s AND holder = %(holder)s"

BEGIN_SESSION = """
INSERT INTO chatbot.session AS s (identity, id, used_at, record)
VALUES (%(identity)s, %(id)s, %(used_at)s, %(record)s)
ON CONFLICT (identity, id) DO UPDATE SET record = excluded.record, used_at = excluded.used_at
    WHERE s.identity = %(identity)s AND NOT s.is_published
"""
PUBLISH_SESSION = """
UPDATE chatbot.session SET is_published = true, record = %(record)s, used_at = %(used_at)s
WHERE identity = %(identity)s AND id = %(id)s
"""
DELETE_DRAFTS = """
DELETE FROM chatbot.session
WHERE identity = %(identity)s AND NOT is_published AND begun_at < now() - interval '1 day' RETURNING id
"""
FORKS_BEGUN = """
SELECT id FROM chatbot.session
WHERE identity = %(identity)s AND NOT is_published AND chatbot.as_json(record) ->> 'parent' = %(id)s
"""
READ_SESSION = """
SELECT record, used_at FROM chatbot.session WHERE identity = %(identity)s AND id = %(id)s AND is_published
"""
LOCK_SESSION = f"{READ_SESSION} FOR UPDATE"
FIND_SESSIONS = """
SELECT id, record, used_at FROM chatbot.session
WHERE identity = %(identity)s AND is_published AND (used_at, id) < (%(used_at)s, %(id)s)
ORDER BY used_at DESC, id DESC LIMIT %(limit)s
"""
SESSION_IDS = "SELECT id FROM chatbot.session WHERE identity = %(identity)s AND is_published"
CHANGE_SESSION = """
UPDATE chatbot.session SET record = %(record)s, used_at = %(used_at)s WHERE identity = %(identity)s AND id = %(id)s
"""
NOTE_USED = """
UPDATE chatbot.session SET used_at = greatest(used_at, %(used_at)s)
WHERE identity = %(identity)s AND id = %(id)s AND is_published
"""
DELETE_SESSION = "DELETE FROM chatbot.session WHERE identity = %(identity)s AND id = %(id)s RETURNING is_published"
DELETE_MESSAGES = "DELETE FROM chatbot.message WHERE identity = %(identity)s AND session = %(id)s"
DELETE_VALUES = "DELETE FROM chatbot.key_value WHERE identity = %(identity)s AND session = %(id)s"
DELETE_OF_SESSION = (
    "DELETE FROM chatbot.head WHERE identity = %(identity)s AND session = %(id)s",  # first: it stops appends
    DELETE_MESSAGES,
    DELETE_VALUES,
    "DELETE FROM chatbot.line WHERE identity = %(identity)s AND session = %(id)s",
    "DELETE FROM chatbot.document WHERE identity = %(identity)s AND session = %(id)s",
    "DELETE FROM chatbot.lease WHERE identity = %(identity)s AND session = %(id)s",
)

APPEND_MESSAGES = f"""
WITH there AS ({_THERE}), head AS ({_HEAD})
INSERT INTO chatbot.message (identity, session, n, role, content, at)
SELECT %(identity)s, %(session)s, head.next - %(count)s + m.number, m.role, m.content, m.at
FROM head, unnest(%(roles)s::text[], %(contents)s::text[], %(times)s::timestamptz[])
    WITH ORDINALITY AS m (role, content, at, number)
"""
APPEND_MISSING_MESSAGES = f"""{APPEND_MESSAGES}
WHERE NOT EXISTS (
    SELECT FROM chatbot.message AS l
    WHERE l.identity = %(identity)s AND l.session = %(session)s
        AND l.n > head.next - {_LOOKED_AT} AND l.role = m.role AND l.content = m.content AND l.at = m.at
)
"""
ADD_MESSAGE = f"""
WITH head AS ({_NEXT})
INSERT INTO chatbot.message (identity, session, n, role, content, at)
SELECT %(identity)s, %(session)s, head.next, %(role)s, %(content)s, %(at)s FROM head
"""
"""Append to existing messages, as `ADD_LINE` to lines."""
LAST_MESSAGES = """
SELECT role, content, at FROM chatbot.message
WHERE identity = %(identity)s AND session = %(session)s ORDER BY n DESC LIMIT %(limit)s
"""
MESSAGES_OF = """
SELECT session, role, content, at FROM chatbot.message
WHERE identity = %(identity)s AND session = ANY(%(sessions)s) ORDER BY session, n
"""
COUNT_MESSAGES = """
SELECT session, count(*) FROM chatbot.message
WHERE identity = %(identity)s AND session = ANY(%(sessions)s)
    AND (%(roles)s::text[] = '{}' OR role = ANY(%(roles)s::text[])) GROUP BY session
"""
DROP_MESSAGES = """
DELETE FROM chatbot.message
WHERE identity = %(identity)s AND session = %(session)s AND n IN (
    SELECT n FROM chatbot.message WHERE identity = %(identity)s AND session = %(session)s
    ORDER BY n DESC LIMIT %(limit)s
) RETURNING n, role, content, at
"""

GET_VALUE = """
SELECT value FROM chatbot.key_value WHERE identity = %(identity)s AND session = %(session)s AND key = %(key)s
"""
SET_VALUE = f"""
WITH there AS ({_THERE}), head AS ({_HEAD})
INSERT INTO chatbot.key_value AS k (identity, session, key, n, value, at)
SELECT %(identity)s, %(session)s, %(key)s, head.next, %(value)s, %(at)s FROM head
ON CONFLICT (identity, session, key) DO UPDATE SET n = excluded.n, value = excluded.value, at = excluded.at
    WHERE k.identity = %(identity)s
"""
TRIM_VALUES = """
DELETE FROM chatbot.key_value
WHERE identity = %(identity)s AND session = %(session)s AND n <= (
    SELECT n FROM chatbot.key_value WHERE identity = %(identity)s AND session = %(session)s
    ORDER BY n DESC OFFSET %(cap)s LIMIT 1
)
"""
DELETE_VALUE = """
DELETE FROM chatbot.key_value WHERE identity = %(identity)s AND session = %(session)s AND key = %(key)s
"""
ALL_VALUES = """
SELECT key, value, at FROM chatbot.key_value
WHERE identity = %(identity)s AND session = %(session)s ORDER BY n
"""

STATE_OF_HEAD = """
SELECT generation, next FROM chatbot.head
WHERE identity = %(identity)s AND session = %(session)s AND name = %(name)s
"""
STATES_OF_HEADS = """
SELECT session, generation, next FROM chatbot.head
WHERE identity = %(identity)s AND session = ANY(%(sessions)s) AND name = %(name)s
"""
STATE_OF_LOG = """
SELECT h.generation, h.next, h.next >= %(end)s AND (%(start)s < 0 OR EXISTS (
    SELECT FROM chatbot.event AS e
    WHERE e.identity = %(identity)s AND e.start = %(start)s AND left(e.line, length(%(begins)s::text)) = %(begins)s
))
FROM chatbot.head AS h
WHERE h.identity = %(identity)s AND h.session = %(session)s AND h.name = %(name)s
"""
"""The head of the log, and whether the log still has the last line that was read, which begins so."""
READ_EVENTS = """
SELECT start, line FROM chatbot.event
WHERE identity = %(identity)s AND start >= %(start)s AND start < %(end)s ORDER BY start LIMIT %(limit)s
"""
EVENTS_AT = "SELECT start, line FROM chatbot.event WHERE identity = %(identity)s AND start = ANY(%(starts)s)"
LAST_EVENT = """
SELECT start, line FROM chatbot.event
WHERE identity = %(identity)s AND start < %(end)s ORDER BY start DESC LIMIT 1
"""
ADD_EVENTS = """
INSERT INTO chatbot.event (identity, start, line)
SELECT %(identity)s, e.start, e.line FROM unnest(%(starts)s::bigint[], %(lines)s::text[]) AS e (start, line)
"""
ADD_EVENTS_NEXT = """
WITH head AS (
    UPDATE chatbot.head SET next = %(next)s
    WHERE identity = %(identity)s AND session = %(session)s AND name = %(name)s
        AND generation = %(generation)s AND next = %(before)s RETURNING 1
)
INSERT INTO chatbot.event (identity, start, line)
SELECT %(identity)s, e.start, e.line FROM head, unnest(%(starts)s::bigint[], %(lines)s::text[]) AS e (start, line)
"""
"""Append to the log if it still ends there."""
DROP_EVENTS = "DELETE FROM chatbot.event WHERE identity = %(identity)s AND start = ANY(%(starts)s)"
CHANGE_EVENTS = """
UPDATE chatbot.event AS v SET line = e.line FROM unnest(%(starts)s::bigint[], %(lines)s::text[]) AS e (start, line)
WHERE v.identity = %(identity)s AND v.start = e.start
"""
SET_HEAD = """
UPDATE chatbot.head SET generation = %(generation)s, next = %(next)s
WHERE identity = %(identity)s AND session = %(session)s AND name = %(name)s
"""

SHELF_STAMP = """
SELECT version FROM chatbot.document
WHERE identity = %(identity)s AND session = '' AND name = %(name)s AND value IS NOT NULL
"""
LOCK_SHELF = """
SELECT version FROM chatbot.document WHERE identity = %(identity)s AND session = '' AND name = %(name)s FOR UPDATE
"""
CLEAR_PIECES = "DELETE FROM chatbot.piece WHERE identity = %(identity)s AND shelf = %(shelf)s"
PIECE_NAMES = "SELECT name FROM chatbot.piece WHERE identity = %(identity)s AND shelf = %(shelf)s"
READ_PIECE = """
SELECT data FROM chatbot.piece WHERE identity = %(identity)s AND shelf = %(shelf)s AND name = %(piece)s
"""
PUT_PIECE = """
INSERT INTO chatbot.piece AS p (identity, shelf, name, data) VALUES (%(identity)s, %(shelf)s, %(piece)s, %(data)s)
ON CONFLICT (identity, shelf, name) DO UPDATE SET data = excluded.data WHERE p.identity = %(identity)s
"""
DROP_PIECES = """
DELETE FROM chatbot.piece WHERE identity = %(identity)s AND shelf = %(shelf)s AND name = ANY(%(pieces)s)
"""

IS_THERE = """
SELECT 1 WHERE EXISTS (SELECT 1 FROM chatbot.session WHERE identity = %(identity)s)
    OR EXISTS (SELECT 1 FROM chatbot.head WHERE identity = %(identity)s)
"""
SIZE_OF_SESSIONS = """
SELECT coalesce(sum(size), 0) FROM (
    SELECT octet_length(content) FROM chatbot.message WHERE identity = %(identity)s
    UNION ALL SELECT octet_length(value) FROM chatbot.key_value WHERE identity = %(identity)s
    UNION ALL SELECT octet_length(record) FROM chatbot.line WHERE identity = %(identity)s AND session <> ''
    UNION ALL SELECT octet_length(value) FROM chatbot.document WHERE identity = %(identity)s AND session <> ''
) AS parts (size)
"""
SIZE_OF_EVENTS = "SELECT coalesce(sum(octet_length(line) + 1), 0) FROM chatbot.event WHERE identity = %(identity)s"
SIZE_OF_PIECES = "SELECT coalesce(sum(octet_length(data)), 0) FROM chatbot.piece WHERE identity = %(identity)s"

WITHOUT_IDENTITY: dict[str, LiteralString] = {
    "process": "SELECT pg_backend_pid(), current_setting('default_transaction_isolation')",
    "clock": "SELECT clock_timestamp()",
    "dates": "SET DateStyle = 'ISO'",
    "defaults": """
SELECT set_config('plan_cache_mode', 'force_generic_plan', false),
    set_config('default_transaction_isolation', 'read committed', false)
""",
    "version": "SELECT number FROM chatbot.version",
    "rights": """
SELECT r.rolsuper, r.rolbypassrls, EXISTS (
    SELECT 1 FROM pg_class AS c JOIN pg_namespace AS s ON s.oid = c.relnamespace
    WHERE s.nspname = 'chatbot' AND c.relkind IN ('r', 'p') AND pg_has_role(c.relowner, 'USAGE')
) FROM pg_roles AS r WHERE r.rolname = current_user
""",
    "closed": """
SELECT c.relname FROM pg_class AS c JOIN pg_namespace AS s ON s.oid = c.relnamespace
WHERE s.nspname = 'chatbot' AND c.relkind = 'p' AND EXISTS (
    SELECT FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS wanted (privilege)
    WHERE NOT has_table_privilege(c.oid, wanted.privilege)
) ORDER BY 1
""",
}
"""Statements without an identity: they read no row of one."""
