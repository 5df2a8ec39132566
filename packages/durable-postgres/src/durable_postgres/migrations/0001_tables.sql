-- The tables of durable-postgres. Where this is a template, @schema@ is the quoted name of the schema that they live in, @literal@
-- the same inside a literal, and @lock@ the number that its position locks begin from. A table marked `partitions` may be
-- partitioned by hash of the workflow.

CREATE TABLE @schema@.workflow_schema (
    version integer PRIMARY KEY
);

-- One number for every token, receipt and guard, so that none is ever given twice. [CKP-CLAIM-RISING]
CREATE SEQUENCE @schema@.workflow_number AS bigint;

-- The order of records, drawn under the position lock of their workflow. [CKP-LOAD-PREFIX]
CREATE SEQUENCE @schema@.workflow_position AS bigint;

-- The records. `once` is the sender's id of an inbox entry. [CKP-APPEND-ONCE]
CREATE TABLE @schema@.workflow_checkpoint (
    workflow text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    value text COLLATE "C" NOT NULL,
    seq bigint NOT NULL DEFAULT nextval('@literal@.workflow_position'),
    at timestamptz NOT NULL,
    once text COLLATE "C",
    PRIMARY KEY (workflow, key)
) /* partitions */;
-- Values are stored as they come: compressing each takes longer than writing it.
ALTER TABLE @schema@.workflow_checkpoint ALTER COLUMN value SET STORAGE EXTERNAL;
CREATE UNIQUE INDEX workflow_checkpoint_once ON @schema@.workflow_checkpoint (workflow, once) WHERE once IS NOT NULL;
CREATE INDEX workflow_checkpoint_outcome ON @schema@.workflow_checkpoint (at, workflow) WHERE key = 'outcome:';

-- The last token issued for a workflow. Live: held, and before the earlier of seen + alive and until. [CKP-CLAIM-LAPSE]
-- No column that changes with a heartbeat is indexed, and pages keep room, so that heartbeats touch no index.
CREATE TABLE @schema@.workflow_claim (
    workflow text COLLATE "C" PRIMARY KEY,
    token bigint NOT NULL,
    held boolean NOT NULL,
    until timestamptz NOT NULL,
    alive interval NOT NULL,
    seen timestamptz NOT NULL,
    wanted boolean NOT NULL
) /* partitions */ WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

-- The wakeups. With a receipt: taken, until `lease`. With a reason: buried. `look` is when a taker looks at the row: it follows `due`,
-- or the end of a lease or of a claim that was met. A renewal moves `lease`, which no index holds. [SCH-NEXT-DEEP]
CREATE TABLE @schema@.workflow_queue (
    workflow text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    due timestamptz NOT NULL,
    look timestamptz NOT NULL,
    attempt bigint NOT NULL,
    lapses bigint NOT NULL,
    receipt bigint,
    lease timestamptz,
    newer boolean NOT NULL,
    reason text,
    PRIMARY KEY (workflow, queue)
) /* partitions */ WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
CREATE INDEX workflow_queue_look ON @schema@.workflow_queue (queue, look) WHERE reason IS NULL;

-- A row here that nothing satisfies makes any commit fail while an effect runs. [CKP-TRANSACT-OWN]
CREATE TABLE @schema@.workflow_never (
    id bigint PRIMARY KEY CHECK (id < 0)
);
CREATE TABLE @schema@.workflow_guard (
    id bigint PRIMARY KEY REFERENCES @schema@.workflow_never (id) DEFERRABLE INITIALLY DEFERRED
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
