"""Every statement of the store, named after its method, in contract order. Instants and durations are microseconds."""

import os

# ------------------------------------------------------------------------------------------------- opening and closing

# SQLite asks the authorizer when it prepares a statement, and `sqlite3` keeps prepared ones by their text: with this comment an
# effect that runs COMMIT never meets the store's own. [CKP-TRANSACT-OWN]
_OURS = f" -- {os.urandom(8).hex()}"
BEGIN = "BEGIN IMMEDIATE" + _OURS
SNAPSHOT = "BEGIN DEFERRED" + _OURS  # several reads of one state
COMMIT = "COMMIT" + _OURS
ROLLBACK = "ROLLBACK" + _OURS
JOURNAL_MODE = "PRAGMA journal_mode = WAL"
CACHE_SIZE = "PRAGMA cache_size = -32000"  # KiB at most: ids are random, so a deep queue is read all over
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
KEEP = "UPDATE workflow_claim SET until = ?, alive = ?, seen = ? WHERE workflow = ?"
RELEASE = "UPDATE workflow_claim SET held = 0, wanted = 0 WHERE workflow = ?"

HISTORY = "SELECT key, value, at FROM workflow_checkpoint WHERE workflow = ? ORDER BY seq"

DISCARD = "DELETE FROM workflow_checkpoint WHERE workflow = ?"
DISCARD_CLAIM = "DELETE FROM workflow_claim WHERE workflow = ?"

# ---------------------------------------------------------------------------------------------------------- Scheduler

MAKE_READY = """
INSERT INTO workflow_queue (workflow, queue, due, look, attempt, lapses, newer) VALUES (?, ?, ?, ?, 1, 0, 0)
ON CONFLICT (workflow, queue) DO UPDATE
SET newer = receipt IS NOT NULL OR reason IS NOT NULL,
    due = iif(receipt IS NULL AND reason IS NULL, min(due, excluded.due), due),
    look = iif(receipt IS NULL AND reason IS NULL AND due > excluded.due, excluded.due, look)
"""
REVIVE = "DELETE FROM workflow_queue WHERE workflow = ? AND queue = ? AND reason IS NOT NULL"

NEXT_DUE = "SELECT min(look) FROM workflow_queue WHERE queue = ? AND reason IS NULL"
NEXT_READY = """
SELECT workflow, due, attempt, lapses, receipt FROM workflow_queue
WHERE queue = ? AND look <= ? AND reason IS NULL ORDER BY look LIMIT ?
"""
TAKE = """
UPDATE workflow_queue SET due = ?, look = ?, attempt = ?, lapses = ?, receipt = ?, newer = 0
WHERE workflow = ? AND queue = ?
"""

DELIVERY_ROW = "SELECT newer FROM workflow_queue WHERE workflow = ? AND queue = ? AND receipt = ?"
RENEW_DELIVERY = """
UPDATE workflow_queue SET due = max(due, ?), look = max(look, ?) WHERE workflow = ? AND queue = ? AND receipt = ?
"""
WAKE_AT = """
UPDATE workflow_queue SET due = ?, look = ?, attempt = ?, lapses = ?, receipt = NULL, newer = 0
WHERE workflow = ? AND queue = ?
"""
DONE = "DELETE FROM workflow_queue WHERE workflow = ? AND queue = ?"
BURY = "UPDATE workflow_queue SET reason = ?, look = due, receipt = NULL WHERE workflow = ? AND queue = ? AND receipt = ?"
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
SELECT (SELECT value FROM workflow_checkpoint WHERE workflow = ? AND key = 'outcome:'),
       (SELECT reason FROM workflow_queue WHERE workflow = ? AND queue = ?)
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
    SELECT min(workflow) AS workflow FROM workflow_checkpoint WHERE workflow > ?
    UNION ALL SELECT min(workflow) FROM workflow_claim WHERE workflow > ?
    UNION ALL SELECT min(workflow) FROM workflow_queue WHERE workflow > ?
)
"""
WORKFLOWS_FIRST = WORKFLOWS_NEXT.replace("> ?", ">= ?")
WORKFLOWS_RECORDS = """
SELECT count(*), min(at), max(at), max(key = 'outcome:') FROM workflow_checkpoint WHERE workflow = ?
"""
WORKFLOWS_QUEUE = """
SELECT due, attempt, receipt, reason FROM workflow_queue WHERE workflow = ? ORDER BY reason IS NULL, queue <> ?, due LIMIT 1
"""

SWEEP = """
SELECT at, workflow FROM workflow_checkpoint AS outcome
WHERE key = 'outcome:' AND (at, workflow) > (?, ?) AND at < ?
ORDER BY at, workflow LIMIT ?
"""
SWEEP_BUSY = "SELECT 1 FROM workflow_queue WHERE workflow = ?"
