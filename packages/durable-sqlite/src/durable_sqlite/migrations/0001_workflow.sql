-- The schema of durable-sqlite, version 1. Instants and durations are microseconds, instants since 1970 in UTC.

-- Which migrations were applied. The application's own PRAGMA user_version is left alone.
CREATE TABLE workflow_schema (
    version INTEGER PRIMARY KEY
) STRICT;

-- One number for every token and every receipt, so that neither is ever given twice. [CKP-CLAIM-RISING]
CREATE TABLE workflow_counter (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    last INTEGER NOT NULL
) STRICT;
INSERT INTO workflow_counter (one, last) VALUES (1, 0);

-- The records. `seq` is their order, and is explicit so that VACUUM leaves it alone. [CKP-LOAD-ORDER]
CREATE TABLE workflow_checkpoint (
    seq INTEGER PRIMARY KEY,
    workflow TEXT NOT NULL,
    key TEXT NOT NULL,
    value ANY NOT NULL, -- what the codec gave: text, or a blob
    at INTEGER NOT NULL,
    once TEXT, -- the sender's id of an inbox entry [CKP-APPEND-ONCE]
    UNIQUE (workflow, key)
) STRICT;
CREATE UNIQUE INDEX workflow_checkpoint_once ON workflow_checkpoint (workflow, once) WHERE once IS NOT NULL;
CREATE INDEX workflow_checkpoint_outcome ON workflow_checkpoint (at) WHERE key = 'outcome:';

-- The last token issued for a workflow. Live: held, and before the earlier of `seen + alive` and `until`. [CKP-CLAIM-LAPSE]
CREATE TABLE workflow_claim (
    workflow TEXT PRIMARY KEY,
    token INTEGER NOT NULL,
    held INTEGER NOT NULL,
    until INTEGER NOT NULL, -- the end of the budget
    alive INTEGER NOT NULL, -- the liveness window
    seen INTEGER NOT NULL, -- the last sign of life
    wanted INTEGER NOT NULL -- a taker met it and waits for its end [DUR-BEGIN]
) STRICT, WITHOUT ROWID;

-- The wakeups. With a receipt: taken, and due again at the end of the lease. With a reason: buried. Rows that came together
-- lie together, whatever their ids, and are taken together. [SCH-NEXT-DEEP]
CREATE TABLE workflow_queue (
    workflow TEXT NOT NULL,
    queue TEXT NOT NULL,
    due INTEGER NOT NULL,
    look INTEGER NOT NULL, -- when a taker looks at it: `due`, or the lapse of the claim that it met
    attempt INTEGER NOT NULL,
    lapses INTEGER NOT NULL,
    receipt INTEGER,
    newer INTEGER NOT NULL, -- made ready since it was taken or buried
    reason TEXT,
    UNIQUE (workflow, queue)
) STRICT;
CREATE INDEX workflow_queue_look ON workflow_queue (queue, look) WHERE reason IS NULL;
