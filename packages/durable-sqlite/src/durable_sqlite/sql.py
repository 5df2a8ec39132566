"""Every statement of the store, named after its method, in contract order. Instants and durations are microseconds."""

# ------------------------------------------------------------------------------------------------- opening and closing

BEGIN = "BEGIN IMMEDIATE"
COMMIT = "COMMIT"
ROLLBACK = "ROLLBACK"
JOURNAL_MODE = "PRAGMA journal_mode = WAL"
SYNCHRONOUS = {level: f"PRAGMA synchronous = {level}" for level in ("NORMAL", "FULL", "EXTRA")}

# ------------------------------------------------------------------------------------------------------------- schema

SCHEMA_EXISTS = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'workflow_schema'"
SCHEMA_VERSION = "SELECT coalesce(max(version), 0) FROM workflow_schema"
SCHEMA_APPLIED = "INSERT INTO workflow_schema (version) VALUES (?)"

# ------------------------------------------------------------------------------------------------------- Checkpointer

LOAD = "SELECT key, value FROM workflow_checkpoint WHERE workflow = ? ORDER BY seq LIMIT -1 OFFSET ?"

RECORD = "INSERT INTO workflow_checkpoint (workflow, key, value, at) VALUES (?, ?, ?, ?) ON CONFLICT (workflow, key) DO NOTHING"
RECORDED = "SELECT value FROM workflow_checkpoint WHERE workflow = ? AND key = ?"

APPEND = "INSERT INTO workflow_checkpoint (workflow, key, value, at, once) VALUES (?, ?, ?, ?, ?)"
APPENDED = "SELECT key, value FROM workflow_checkpoint WHERE workflow = ? AND once = ?"
# The semicolon follows the colon: the range holds the inbox and nothing else. [CKP-APPEND-ABOVE]
APPEND_LAST = "SELECT max(key) FROM workflow_checkpoint WHERE workflow = ? AND key > 'inbox:' AND key < 'inbox;'"

CLAIM = """
INSERT INTO workflow_claim (workflow, token, held, until, alive, seen, wanted) VALUES (?, ?, 1, ?, ?, ?, 0)
ON CONFLICT (workflow) DO UPDATE
SET token = excluded.token, held = 1, until = excluded.until, alive = excluded.alive, seen = excluded.seen, wanted = 0
"""
CLAIM_ROW = "SELECT token, held, until, alive, seen, wanted FROM workflow_claim WHERE workflow = ?"
COUNTER = "UPDATE workflow_counter SET last = last + 1 RETURNING last"

SEEN = "UPDATE workflow_claim SET seen = ? WHERE workflow = ?"
EXTEND = "UPDATE workflow_claim SET until = max(until, ?), alive = ?, seen = max(seen, ?) WHERE workflow = ?"
RENEW = "UPDATE workflow_claim SET alive = ?, seen = max(seen, ?) WHERE workflow = ?"
RELEASE = "UPDATE workflow_claim SET held = 0, wanted = 0 WHERE workflow = ?"

HISTORY = "SELECT key, value, at FROM workflow_checkpoint WHERE workflow = ? ORDER BY seq"

DISCARD = "DELETE FROM workflow_checkpoint WHERE workflow = ?"
DISCARD_CLAIM = "DELETE FROM workflow_claim WHERE workflow = ?"

# ---------------------------------------------------------------------------------------------------------- Scheduler

MAKE_READY = """
INSERT INTO workflow_queue (workflow, queue, due, look, attempt, lapses, newer) VALUES (?1, ?2, ?3, ?3, 1, 0, 0)
ON CONFLICT (workflow, queue) DO UPDATE
SET newer = receipt IS NOT NULL OR reason IS NOT NULL,
    due = iif(receipt IS NULL AND reason IS NULL, min(due, ?3), due),
    look = iif(receipt IS NULL AND reason IS NULL AND due > ?3, ?3, look)
"""
REVIVE = "DELETE FROM workflow_queue WHERE workflow = ? AND queue = ? AND reason IS NOT NULL"

NEXT_DUE = "SELECT min(look) FROM workflow_queue WHERE queue = ? AND reason IS NULL"
NEXT_READY = """
SELECT workflow, due, attempt, lapses, receipt FROM workflow_queue
WHERE queue = ? AND look <= ? AND reason IS NULL ORDER BY look LIMIT ?
"""
TAKE = """
UPDATE workflow_queue SET due = ?1, look = ?1, attempt = ?2, lapses = ?3, receipt = ?4, newer = 0
WHERE workflow = ?5 AND queue = ?6
"""

DELIVERY_ROW = "SELECT newer FROM workflow_queue WHERE workflow = ? AND queue = ? AND receipt = ?"
RENEW_DELIVERY = """
UPDATE workflow_queue SET due = max(due, ?1), look = max(look, ?1) WHERE workflow = ?2 AND queue = ?3 AND receipt = ?4
"""
WAKE_AT = """
UPDATE workflow_queue SET due = ?1, look = ?1, attempt = ?2, lapses = ?3, receipt = NULL, newer = 0
WHERE workflow = ?4 AND queue = ?5
"""
DONE = "DELETE FROM workflow_queue WHERE workflow = ? AND queue = ?"
BURY = "UPDATE workflow_queue SET reason = ?1, look = due, receipt = NULL WHERE workflow = ?2 AND queue = ?3 AND receipt = ?4"
BURIED = "SELECT reason FROM workflow_queue WHERE workflow = ? AND queue = ?"
CANCEL = "DELETE FROM workflow_queue WHERE workflow = ? AND queue = ?"

# ------------------------------------------------------------------------------------------------------------ Durable

BEGIN_LOAD = "SELECT key, value FROM workflow_checkpoint WHERE workflow = ? ORDER BY seq LIMIT ?"
FINISHED = "SELECT 1 FROM workflow_checkpoint WHERE workflow = ? AND key = 'outcome:'"
CONTENDED = "UPDATE workflow_queue SET look = ? WHERE workflow = ? AND queue = ?"
WANTED = "UPDATE workflow_claim SET wanted = 1 WHERE workflow = ?"
# Whoever met a claim that is released or discarded now looks again at once, in whatever queue. [DUR-BEGIN]
UNCONTENDED = "UPDATE workflow_queue SET look = due WHERE workflow = ? AND look <> due"
RESULT = """
SELECT (SELECT value FROM workflow_checkpoint WHERE workflow = ?1 AND key = 'outcome:'),
       (SELECT reason FROM workflow_queue WHERE workflow = ?1 AND queue = ?2)
"""

# ------------------------------------------------------------------------------------------------------------- joined

JOINED = "SAVEPOINT durable_joined"
JOINED_KEPT = "RELEASE durable_joined"
JOINED_UNDONE = "ROLLBACK TO durable_joined"
# Changes nothing and takes the write lock, so that the clock is read under it. [CKP-HISTORY-RISING]
LOCK = "UPDATE workflow_counter SET last = last WHERE one = 0"
DATABASES = "PRAGMA database_list"

# ------------------------------------------------------------------------------------------------------------ Catalog

WORKFLOWS_NEXT = """
SELECT min(workflow) FROM (
    SELECT min(workflow) AS workflow FROM workflow_checkpoint WHERE workflow > ?1
    UNION ALL SELECT min(workflow) FROM workflow_claim WHERE workflow > ?1
    UNION ALL SELECT min(workflow) FROM workflow_queue WHERE workflow > ?1
)
"""
WORKFLOWS_FIRST = WORKFLOWS_NEXT.replace("> ?1", ">= ?1")
WORKFLOWS_RECORDS = """
SELECT count(*), min(at), max(at), max(key = 'outcome:') FROM workflow_checkpoint WHERE workflow = ?
"""
WORKFLOWS_QUEUE = """
SELECT due, attempt, receipt, reason FROM workflow_queue WHERE workflow = ? ORDER BY reason IS NULL, queue <> ?, due LIMIT 1
"""

SWEEP = """
SELECT at, workflow FROM workflow_checkpoint AS outcome
WHERE key = 'outcome:' AND (at, workflow) > (?1, ?2) AND at < ?3
ORDER BY at, workflow LIMIT ?4
"""
SWEEP_BUSY = "SELECT 1 FROM workflow_queue WHERE workflow = ?1"
