"""Every statement of the store, named after its method, in contract order. `{schema}` is the quoted schema and a dot. Instants
come back without a zone, in UTC: a session's own zone cannot hold the last of them.

Those that do not name a workflow are listed in `SCANS`: they look for due work, for operators, or at the schema.
"""

from __future__ import annotations

# ------------------------------------------------------------------------------------------------------- Checkpointer

LOAD = "SELECT key, value FROM {schema}workflow_checkpoint WHERE workflow = %s ORDER BY seq OFFSET %s"
RECORD = "SELECT state, stored FROM {schema}workflow_record_v1(%s, %s, %s, %s, %s)"
RECORD_GROUP = "SELECT state, stored FROM {schema}workflow_record_group_v1(%s::text[], %s::bigint[], %s::text[], %s::text[])"
RECORDED = "SELECT value FROM {schema}workflow_checkpoint WHERE workflow = %s AND key = %s"
TRANSACT = "SELECT state, stored, guard FROM {schema}workflow_transact_v1(%s, %s, %s)"
TRANSACTED = "SELECT {schema}workflow_transacted_v1(%s, %s, %s, %s, %s)"
APPEND = "SELECT key, value FROM {schema}workflow_append_v1(%s, %s, %s)"
CLAIM = "SELECT token, at AT TIME ZONE 'UTC' FROM {schema}workflow_claim_v1(%s, %s, %s)"
KEEP = "SELECT {schema}workflow_keep_v1(%s, %s, %s, %s)"
RELEASE = "SELECT {schema}workflow_release_v1(%s, %s)"
HISTORY = "SELECT key, value, at AT TIME ZONE 'UTC' FROM {schema}workflow_checkpoint WHERE workflow = %s ORDER BY seq"
DISCARD = "SELECT {schema}workflow_discard_v1(%s, %s)"

# ---------------------------------------------------------------------------------------------------------- Scheduler

NOW = "SELECT clock_timestamp() AT TIME ZONE 'UTC'"
MAKE_READY = "SELECT {schema}workflow_make_ready_v1(%s, %s, %s)"
NEXT_READY = """
SELECT workflow, receipt, attempt, lapses, due AT TIME ZONE 'UTC', moment AT TIME ZONE 'UTC'
FROM {schema}workflow_next_ready_v1(%s, %s)
"""
RENEW = "SELECT {schema}workflow_renew_v1(%s, %s, %s, %s, true)"
ANSWER = "SELECT {schema}workflow_answer_v1(%s, %s, %s, %s, %s, %s, %s, %s)"
BURIED = "SELECT reason FROM {schema}workflow_queue WHERE workflow = %s AND queue = %s"
CANCEL = "SELECT {schema}workflow_cancel_v1(%s, %s)"

# ------------------------------------------------------------------------------------------------------------ Durable

ARRIVE = "SELECT state, stored FROM {schema}workflow_arrive_v1(%s, %s, %s, %s)"
DELIVER = "SELECT key, value FROM {schema}workflow_deliver_v1(%s, %s, %s, %s)"
BEGIN = """
SELECT workflow, token, at AT TIME ZONE 'UTC', attempt, lapses, due AT TIME ZONE 'UTC', big, key, value
FROM {schema}workflow_begin_v1(%s, %s, %s, %s, %s, %s)
"""
KEEP_TURN = "SELECT {schema}workflow_keep_turn_v1(%s, %s, %s, %s, %s)"
FINISH = "SELECT state, stored, met FROM {schema}workflow_finish_v1(%s, %s, %s, %s, %s)"
END = "SELECT {schema}workflow_end_v1(%s, %s, %s, %s, %s, %s, %s, %s, %s)"
RESULT = """
SELECT (SELECT value FROM {schema}workflow_checkpoint WHERE workflow = %(workflow)s AND key = 'outcome:'),
       (SELECT reason FROM {schema}workflow_queue WHERE workflow = %(workflow)s AND queue = %(queue)s)
"""

# ------------------------------------------------------------------------------------------------------------ Catalog

WORKFLOWS = """
SELECT workflow FROM (
    (SELECT DISTINCT workflow FROM {schema}workflow_checkpoint WHERE workflow > %(after)s AND workflow >= %(prefix)s
     ORDER BY workflow LIMIT %(part)s)
    UNION (SELECT workflow FROM {schema}workflow_claim WHERE workflow > %(after)s AND workflow >= %(prefix)s
     ORDER BY workflow LIMIT %(part)s)
    UNION (SELECT DISTINCT workflow FROM {schema}workflow_queue WHERE workflow > %(after)s AND workflow >= %(prefix)s
     ORDER BY workflow LIMIT %(part)s)
) AS found ORDER BY workflow LIMIT %(part)s
"""
WORKFLOWS_LISTED = """
SELECT w.workflow, clock_timestamp() AT TIME ZONE 'UTC', p.records, p.first AT TIME ZONE 'UTC', p.last AT TIME ZONE 'UTC',
       p.finished, c.lapses AT TIME ZONE 'UTC', r.due AT TIME ZONE 'UTC', r.attempt, r.receipt IS NOT NULL, r.reason,
       r.lease AT TIME ZONE 'UTC'
FROM unnest(%(workflows)s::text[]) WITH ORDINALITY AS w (workflow, place)
CROSS JOIN LATERAL (
    SELECT count(*) AS records, min(at) AS first, max(at) AS last, coalesce(bool_or(key = 'outcome:'), false) AS finished
    FROM {schema}workflow_checkpoint WHERE workflow = w.workflow
) AS p
LEFT JOIN LATERAL (
    SELECT least(seen + alive, until) AS lapses FROM {schema}workflow_claim
    WHERE workflow = w.workflow AND held AND clock_timestamp() < least(seen + alive, until)
) AS c ON true
LEFT JOIN LATERAL (
    SELECT * FROM {schema}workflow_queue WHERE workflow = w.workflow
    ORDER BY reason IS NULL, queue <> %(queue)s, due LIMIT 1
) AS r ON true
ORDER BY w.place
"""
SWEEP = "SELECT at AT TIME ZONE 'UTC', workflow, swept FROM {schema}workflow_sweep_v1(%s, %s, %s, %s)"

# ------------------------------------------------------------------------------------------------------ what it stands on

READ_COMMITTED = "BEGIN ISOLATION LEVEL READ COMMITTED"
COMMIT = "COMMIT"
SETTINGS = """
SELECT current_setting('server_version'), current_setting('fsync'), current_setting('synchronous_commit'),
       current_setting('full_page_writes'), current_setting('synchronous_standby_names')
"""
NOTIFY = "SELECT pg_notify(%s, %s)"
WHERE = """
SELECT (SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.oid = to_regclass('workflow_schema')),
       current_schema(), current_setting('server_encoding')
"""
LACKING = """
SELECT name, CASE WHEN id IS NULL THEN 'it is missing' ELSE 'grant SELECT, INSERT, UPDATE, DELETE' END FROM (
    SELECT name, to_regclass(format('%%I.%%I', %(schema)s::text, name)) AS id FROM unnest(%(table)s::text[]) AS name
) AS tables WHERE id IS NULL OR NOT (has_table_privilege(id, 'SELECT') AND has_table_privilege(id, 'INSERT')
    AND has_table_privilege(id, 'UPDATE') AND has_table_privilege(id, 'DELETE')) AND name <> 'workflow_schema'
UNION ALL
SELECT name, CASE WHEN id IS NULL THEN 'it is missing' ELSE 'grant USAGE' END FROM (
    SELECT name, to_regclass(format('%%I.%%I', %(schema)s::text, name)) AS id FROM unnest(%(sequence)s::text[]) AS name
) AS sequences WHERE id IS NULL OR NOT has_sequence_privilege(id, 'USAGE')
UNION ALL
SELECT name, CASE WHEN id IS NULL THEN 'it is missing' ELSE 'grant EXECUTE' END FROM (
    SELECT name, (
        SELECT p.oid FROM pg_proc p WHERE p.proname = name AND p.pronamespace = to_regnamespace(quote_ident(%(schema)s))
    ) AS id
    FROM unnest(%(function)s::text[]) AS name
) AS functions WHERE id IS NULL OR NOT has_function_privilege(id, 'EXECUTE')
ORDER BY 1
"""

SCANS = frozenset(
    {"NOW", "NEXT_READY", "BEGIN", "WORKFLOWS", "SWEEP", "READ_COMMITTED", "COMMIT", "SETTINGS", "NOTIFY", "WHERE", "LACKING"}
)
