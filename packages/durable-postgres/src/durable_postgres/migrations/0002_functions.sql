-- The operations that need a snapshot taken after their locks, as functions: under READ COMMITTED each statement in them has a new
-- one, and under another level they refuse. A function that changes gets a new name, so that two releases can be at work.
--
-- One lock order everywhere: rows of the queue, position lock of the workflow, claim row, records. `begin` waits for none of them.
-- A plan that was made while a table was empty is used when it is long, so reading it all is no plan at any time.
-- SQLSTATEs of ours: DU001 another isolation than READ COMMITTED, DU002 fenced, DU003 the effect ended its transaction, DU005 the
-- inbox is full.

-- Refuse where a statement's snapshot would be older than its locks.
CREATE FUNCTION @schema@.workflow_check_v1() RETURNS void LANGUAGE plpgsql STABLE AS $durable$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'durable needs READ COMMITTED' USING ERRCODE = 'DU001';
    END IF;
END $durable$;

-- Record one, under the position lock; `t` is NULL for a supply. Without patience a workflow whose lock is taken is left alone.
-- State: 0 written, or equal; 1 lost, with what is stored; 2 fenced; 3 busy.
-- [CKP-RECORD-ONCE] [CKP-RECORD-FENCED] [CKP-RECORD-LIVE] [CKP-RECORD-STILL] [CKP-LOAD-PREFIX]
CREATE FUNCTION @schema@.workflow_record_v1(w text, t bigint, k text, val text, patient boolean, OUT state integer, OUT stored text)
LANGUAGE plpgsql VOLATILE SET enable_seqscan = off AS $durable$
DECLARE
    claim @schema@.workflow_claim;
    moment timestamptz;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM @schema@.workflow_check_v1();
    END IF;
    IF patient THEN
        PERFORM pg_advisory_xact_lock(hashtextextended(w, @lock@));
    ELSIF NOT pg_try_advisory_xact_lock(hashtextextended(w, @lock@)) THEN
        state := 3;
        RETURN;
    END IF;
    moment := clock_timestamp();
    IF t IS NOT NULL THEN
        SELECT * INTO claim FROM @schema@.workflow_claim c WHERE c.workflow = w;
        IF claim.token IS DISTINCT FROM t THEN
            state := 2;
            RETURN;
        END IF;
        IF claim.held AND moment - claim.seen >= claim.alive / 3 THEN
            UPDATE @schema@.workflow_claim c SET seen = greatest(c.seen, moment)
            WHERE c.workflow = w AND c.token = t AND c.held;
        END IF;
    END IF;
    state := 0;
    SELECT p.value INTO stored FROM @schema@.workflow_checkpoint p WHERE p.workflow = w AND p.key = k;
    IF NOT FOUND THEN
        INSERT INTO @schema@.workflow_checkpoint (workflow, key, value, at) VALUES (w, k, val, moment);
    ELSIF stored = val THEN
        stored := NULL;
    ELSE
        state := 1;
    END IF;
END $durable$;

-- Record many. Items of one workflow stand together; one whose lock is taken is left alone.
-- [CKP-RECORD-CONCURRENT]
CREATE FUNCTION @schema@.workflow_record_group_v1(workflows text[], tokens bigint[], keys text[], vals text[])
RETURNS TABLE (state integer, stored text) LANGUAGE plpgsql VOLATILE SET enable_seqscan = off AS $durable$
DECLARE
    here text;
    locked boolean;
    claim @schema@.workflow_claim;
    moment timestamptz;
BEGIN
    PERFORM @schema@.workflow_check_v1();
    FOR i IN 1 .. array_length(workflows, 1) LOOP
        IF here IS DISTINCT FROM workflows[i] THEN
            here := workflows[i];
            locked := pg_try_advisory_xact_lock(hashtextextended(here, @lock@));
            claim := NULL;
            IF locked THEN
                SELECT * INTO claim FROM @schema@.workflow_claim c WHERE c.workflow = here;
            END IF;
            moment := clock_timestamp();
        END IF;
        stored := NULL;
        state := 0;
        IF NOT locked THEN
            state := 3;
        ELSIF tokens[i] IS NOT NULL AND claim.token IS DISTINCT FROM tokens[i] THEN
            state := 2;
        ELSE
            IF tokens[i] IS NOT NULL AND claim.held AND moment - claim.seen >= claim.alive / 3 THEN
                UPDATE @schema@.workflow_claim c SET seen = greatest(c.seen, moment)
                WHERE c.workflow = here AND c.token = tokens[i] AND c.held;
                claim.seen := moment;
            END IF;
            SELECT p.value INTO stored FROM @schema@.workflow_checkpoint p WHERE p.workflow = here AND p.key = keys[i];
            IF NOT FOUND THEN
                INSERT INTO @schema@.workflow_checkpoint (workflow, key, value, at) VALUES (here, keys[i], vals[i], moment);
            ELSIF stored = vals[i] THEN
                stored := NULL;
            ELSE
                state := 1;
            END IF;
        END IF;
        RETURN NEXT;
    END LOOP;
END $durable$;

-- Add an entry above every other, or give the one that `sender` made. [CKP-APPEND-ABOVE] [CKP-APPEND-ONCE] [CKP-APPEND-SORTED]
CREATE FUNCTION @schema@.workflow_append_v1(w text, val text, sender text, OUT key text, OUT value text)
LANGUAGE plpgsql VOLATILE SET enable_seqscan = off AS $durable$
DECLARE
    number bigint;
BEGIN
    PERFORM @schema@.workflow_check_v1();
    PERFORM pg_advisory_xact_lock(hashtextextended(w, @lock@));
    IF sender IS NOT NULL THEN
        SELECT p.key, p.value INTO key, value FROM @schema@.workflow_checkpoint p WHERE p.workflow = w AND p.once = sender;
        IF FOUND THEN
            RETURN;
        END IF;
    END IF;
    SELECT substr(p.key, 7)::bigint INTO number FROM @schema@.workflow_checkpoint p
    WHERE p.workflow = w AND p.key >= 'inbox:' AND p.key < 'inbox;' ORDER BY p.key DESC LIMIT 1;
    number := coalesce(number, 0) + 1;
    IF number >= 9007199254740992 THEN
        RAISE EXCEPTION 'the inbox is full' USING ERRCODE = 'DU005';
    END IF;
    key := 'inbox:' || lpad(number::text, 20, '0');
    value := val;
    INSERT INTO @schema@.workflow_checkpoint (workflow, key, value, at, once)
    VALUES (w, workflow_append_v1.key, val, clock_timestamp(), sender);
END $durable$;

-- Let a workflow run. One that met a claim is looked at again. [SCH-READY-EVENTUALLY] [SCH-READY-COALESCE]
CREATE FUNCTION @schema@.workflow_make_ready_v1(w text, q text, again boolean) RETURNS void
LANGUAGE plpgsql VOLATILE SET enable_seqscan = off AS $durable$
DECLARE
    moment timestamptz;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM @schema@.workflow_check_v1();
    END IF;
    moment := clock_timestamp();
    INSERT INTO @schema@.workflow_queue AS r (workflow, queue, due, look, attempt, lapses, newer)
    VALUES (w, q, moment, moment, 1, 0, false)
    ON CONFLICT (workflow, queue) DO UPDATE SET
        newer = (r.receipt IS NOT NULL OR r.reason IS NOT NULL) AND NOT (again AND r.reason IS NOT NULL),
        due = CASE
            WHEN again AND r.reason IS NOT NULL THEN excluded.due
            WHEN r.receipt IS NULL AND r.reason IS NULL THEN least(r.due, excluded.due)
            ELSE r.due END,
        look = CASE
            WHEN again AND r.reason IS NOT NULL THEN excluded.due
            WHEN r.receipt IS NULL AND r.reason IS NULL THEN least(r.due, excluded.due)
            ELSE r.look END,
        attempt = CASE WHEN again AND r.reason IS NOT NULL THEN 1 ELSE r.attempt END,
        lapses = CASE WHEN again AND r.reason IS NOT NULL THEN 0 ELSE r.lapses END,
        reason = CASE WHEN again THEN NULL ELSE r.reason END;
END $durable$;

-- [DUR-ARRIVE]
CREATE FUNCTION @schema@.workflow_arrive_v1(w text, q text, k text, val text, OUT state integer, OUT stored text)
LANGUAGE plpgsql VOLATILE SET enable_seqscan = off AS $durable$
BEGIN
    PERFORM @schema@.workflow_make_ready_v1(w, q, false);
    SELECT r.state, r.stored INTO state, stored FROM @schema@.workflow_record_v1(w, NULL, k, val, true) r;
END $durable$;

-- [DUR-DELIVER]
CREATE FUNCTION @schema@.workflow_deliver_v1(w text, q text, val text, sender text, OUT key text, OUT value text)
LANGUAGE plpgsql VOLATILE SET enable_seqscan = off AS $durable$
BEGIN
    PERFORM @schema@.workflow_make_ready_v1(w, q, false);
    SELECT r.key, r.value INTO key, value FROM @schema@.workflow_append_v1(w, val, sender) r;
END $durable$;

-- Have takers look again at what met a claim. Rows that somebody holds are theirs to be looked at again. [DUR-BEGIN]
CREATE FUNCTION @schema@.workflow_look_v1(w text) RETURNS void LANGUAGE plpgsql VOLATILE SET enable_seqscan = off AS $durable$
BEGIN
    UPDATE @schema@.workflow_queue r SET look = r.due
    FROM (
        SELECT x.queue FROM @schema@.workflow_queue x
        WHERE x.workflow = w AND x.receipt IS NULL AND x.look > x.due FOR NO KEY UPDATE SKIP LOCKED
    ) AS met
    WHERE r.workflow = w AND r.queue = met.queue;
END $durable$;

-- Forget the wakeup. [SCH-CANCEL-ALL]
CREATE FUNCTION @schema@.workflow_cancel_v1(w text, q text) RETURNS void LANGUAGE plpgsql VOLATILE SET enable_seqscan = off AS $durable$
BEGIN
    PERFORM @schema@.workflow_check_v1();
    DELETE FROM @schema@.workflow_queue r WHERE r.workflow = w AND r.queue = q;
END $durable$;

-- Forget records and claim; `q`, when it is given, is the queue whose wakeup goes too.
-- [CKP-DISCARD-ALL] [CKP-DISCARD-FENCE] [DUR-DELETE]
CREATE FUNCTION @schema@.workflow_discard_v1(w text, q text) RETURNS bigint LANGUAGE plpgsql VOLATILE SET enable_seqscan = off AS $durable$
DECLARE
    gone bigint;
    met boolean;
BEGIN
    PERFORM @schema@.workflow_check_v1();
    IF q IS NOT NULL THEN
        DELETE FROM @schema@.workflow_queue r WHERE r.workflow = w AND r.queue = q;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended(w, @lock@));
    DELETE FROM @schema@.workflow_claim c WHERE c.workflow = w RETURNING c.wanted INTO met;
    IF met THEN
        PERFORM @schema@.workflow_look_v1(w);
    END IF;
    DELETE FROM @schema@.workflow_checkpoint p WHERE p.workflow = w;
    GET DIAGNOSTICS gone = ROW_COUNT;
    RETURN gone;
END $durable$;

-- Take a workflow for one pass; no row while another is live, and one without a token where somebody is at the workflow.
-- [CKP-CLAIM-ONE] [CKP-CLAIM-RISING] [CKP-CLAIM-REFUSED] [CKP-CLAIM-CLOCK]
CREATE FUNCTION @schema@.workflow_claim_v1(w text, budget interval, window_ interval)
RETURNS TABLE (token bigint, at timestamptz) LANGUAGE plpgsql VOLATILE SET enable_seqscan = off AS $durable$
DECLARE
    claim @schema@.workflow_claim;
BEGIN
    PERFORM @schema@.workflow_check_v1();
    IF NOT pg_try_advisory_xact_lock(hashtextextended(w, @lock@)) THEN
        RETURN NEXT;
        RETURN;
    END IF;
    SELECT * INTO claim FROM @schema@.workflow_claim c WHERE c.workflow = w FOR NO KEY UPDATE;
    at := clock_timestamp();
    IF claim.held AND at < least(claim.seen + claim.alive, claim.until) THEN
        RETURN;
    END IF;
    token := nextval('@literal@.workflow_number');
    INSERT INTO @schema@.workflow_claim AS c (workflow, token, held, until, alive, seen, wanted)
    VALUES (w, workflow_claim_v1.token, true, workflow_claim_v1.at + budget, window_, workflow_claim_v1.at, false)
    ON CONFLICT (workflow) DO UPDATE SET token = excluded.token, held = true, until = excluded.until,
        alive = excluded.alive, seen = excluded.seen, wanted = false;
    RETURN NEXT;
END $durable$;

-- Note a sign of life, and with `budget` a longer one; false when the claim is not held by this token any more. Whoever met the claim
-- looks again where it lapses sooner now.
-- [CKP-EXTEND-GRANT] [CKP-EXTEND-LAPSED] [CKP-RENEW-LIVE] [CKP-RENEW-BUDGET] [CKP-HOLD-LOST]
CREATE FUNCTION @schema@.workflow_keep_v1(w text, t bigint, budget interval, window_ interval) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET enable_seqscan = off AS $durable$
DECLARE
    claim @schema@.workflow_claim;
    moment timestamptz;
BEGIN
    PERFORM @schema@.workflow_check_v1();
    SELECT * INTO claim FROM @schema@.workflow_claim c WHERE c.workflow = w AND c.token = t AND c.held FOR NO KEY UPDATE;
    moment := clock_timestamp();
    IF NOT FOUND OR (budget IS NULL AND moment >= claim.until) THEN
        RETURN false;
    END IF;
    UPDATE @schema@.workflow_claim c SET
        until = CASE WHEN budget IS NULL THEN c.until ELSE greatest(c.until, moment + budget) END,
        alive = window_, seen = greatest(c.seen, moment)
    WHERE c.workflow = w;
    IF claim.wanted AND window_ < claim.alive THEN
        PERFORM @schema@.workflow_look_v1(w);
    END IF;
    RETURN true;
END $durable$;

-- Give the claim back, and let whoever met it look again; true when somebody had met it. [CKP-RELEASE-FREE] [CKP-RELEASE-FINAL]
CREATE FUNCTION @schema@.workflow_release_v1(w text, t bigint) RETURNS boolean LANGUAGE plpgsql VOLATILE SET enable_seqscan = off AS $durable$
DECLARE
    met boolean;
BEGIN
    PERFORM @schema@.workflow_check_v1();
    UPDATE @schema@.workflow_claim c SET held = false WHERE c.workflow = w AND c.token = t AND c.held RETURNING c.wanted INTO met;
    IF met THEN
        PERFORM @schema@.workflow_look_v1(w);
        RETURN true;
    END IF;
    RETURN false;
END $durable$;

-- Take what is due of a queue; a delivery whose lease was renewed is looked at again when that ends. A row without a workflow says
-- when to look again. [SCH-NEXT-OLDEST] [SCH-NEXT-ONE] [SCH-NEXT-LAPSED] [SCH-NEXT-DEEP]
CREATE FUNCTION @schema@.workflow_next_ready_v1(
    q text, lease_ interval,
    OUT workflow text, OUT receipt bigint, OUT attempt bigint, OUT lapses bigint, OUT due timestamptz, OUT moment timestamptz
) LANGUAGE plpgsql VOLATILE SET enable_seqscan = off SET enable_bitmapscan = off AS $durable$
DECLARE
    r @schema@.workflow_queue;
BEGIN
    PERFORM @schema@.workflow_check_v1();
    moment := clock_timestamp();
    LOOP
        SELECT * INTO r FROM @schema@.workflow_queue x WHERE x.queue = q AND x.reason IS NULL AND x.look <= moment
        ORDER BY x.look LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            SELECT min(x.look) INTO due FROM @schema@.workflow_queue x WHERE x.queue = q AND x.reason IS NULL;
            RETURN;
        END IF;
        EXIT WHEN r.receipt IS NULL OR r.lease <= moment;
        UPDATE @schema@.workflow_queue x SET look = x.lease WHERE x.workflow = r.workflow AND x.queue = q;
    END LOOP;
    workflow := r.workflow;
    receipt := nextval('@literal@.workflow_number');
    attempt := r.attempt + CASE WHEN r.receipt IS NULL THEN 0 ELSE 1 END;
    lapses := r.lapses + CASE WHEN r.receipt IS NULL THEN 0 ELSE 1 END;
    due := r.due;
    UPDATE @schema@.workflow_queue x SET due = moment + lease_, look = moment + lease_, lease = moment + lease_,
        attempt = workflow_next_ready_v1.attempt, lapses = workflow_next_ready_v1.lapses,
        receipt = workflow_next_ready_v1.receipt, newer = false
    WHERE x.workflow = r.workflow AND x.queue = q;
END $durable$;

-- Keep a delivery for another lease. Without patience a row that somebody holds is left for the next renewal. [SCH-RENEW-SILENT]
CREATE FUNCTION @schema@.workflow_renew_v1(w text, q text, receipt_ bigint, lease_ interval, patient boolean) RETURNS void
LANGUAGE plpgsql VOLATILE SET enable_seqscan = off AS $durable$
BEGIN
    PERFORM @schema@.workflow_check_v1();
    IF NOT patient THEN
        PERFORM 1 FROM @schema@.workflow_queue r
        WHERE r.workflow = w AND r.queue = q AND r.receipt = receipt_ FOR NO KEY UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            RETURN;
        END IF;
    END IF;
    UPDATE @schema@.workflow_queue r SET lease = greatest(r.lease, clock_timestamp() + lease_)
    WHERE r.workflow = w AND r.queue = q AND r.receipt = receipt_;
END $durable$;

-- Answer for a delivery: `due_` sets the next wakeup, `delay` sets it from now on, `reason_` sets the workflow aside, none of them
-- ends it. True when there is a next wakeup. [SCH-WAKE-ANSWERS] [SCH-WAKE-NEWER] [SCH-WAKE-STALE] [SCH-WAKE-CANCELLED] [SCH-DONE-NEWER] [SCH-BURY-KEEPS]
CREATE FUNCTION @schema@.workflow_answer_v1(
    w text, q text, receipt_ bigint, due_ timestamptz, delay interval, attempt_ bigint, lapses_ bigint, reason_ text
) RETURNS boolean LANGUAGE plpgsql VOLATILE SET enable_seqscan = off AS $durable$
DECLARE
    more boolean;
    moment timestamptz;
    target timestamptz;
BEGIN
    PERFORM @schema@.workflow_check_v1();
    SELECT r.newer INTO more FROM @schema@.workflow_queue r
    WHERE r.workflow = w AND r.queue = q AND r.receipt = receipt_ FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    moment := clock_timestamp();
    IF reason_ IS NOT NULL THEN
        UPDATE @schema@.workflow_queue r SET reason = reason_, receipt = NULL, lease = NULL WHERE r.workflow = w AND r.queue = q;
        RETURN false;
    END IF;
    target := coalesce(due_, moment + delay);
    IF target IS NULL AND NOT more THEN
        DELETE FROM @schema@.workflow_queue r WHERE r.workflow = w AND r.queue = q;
        RETURN false;
    END IF;
    IF target IS NULL OR more THEN
        target := least(target, moment);
    END IF;
    UPDATE @schema@.workflow_queue r SET due = target, look = target, receipt = NULL, lease = NULL, newer = false,
        attempt = attempt_, lapses = lapses_
    WHERE r.workflow = w AND r.queue = q;
    RETURN true;
END $durable$;

-- Take, claim and load up to `most` workflows. A row with a token begins a turn, and its records follow it; `big` says that they
-- are too many. Without a turn there is one row, without a workflow, that says when to look again: now, where it met what somebody is
-- at. Nothing is waited for: that is looked at a moment later. [DUR-BEGIN] [DUR-BEGIN-FRESH]
CREATE FUNCTION @schema@.workflow_begin_v1(q text, lease_ interval, budget interval, most integer, rows_ integer, size_ bigint)
RETURNS TABLE (
    workflow text, token bigint, at timestamptz, attempt bigint, lapses bigint, due timestamptz, big boolean, key text, value text
) LANGUAGE plpgsql VOLATILE SET enable_seqscan = off SET enable_bitmapscan = off AS $durable$
DECLARE
    r @schema@.workflow_queue;
    claim @schema@.workflow_claim;
    p record;
    taken integer := 0;
    busy boolean := false;
    busy_ boolean;
    seen_ integer;
    moment timestamptz := clock_timestamp();
    ends timestamptz;
    lapsed integer;
    found_rows integer;
    found_size bigint;
BEGIN
    PERFORM @schema@.workflow_check_v1();
    FOR round IN 1 .. 20 LOOP
        seen_ := 0;
        FOR r IN
            SELECT * FROM @schema@.workflow_queue x WHERE x.queue = q AND x.reason IS NULL AND x.look <= moment
            ORDER BY x.look LIMIT most - taken FOR NO KEY UPDATE SKIP LOCKED
        LOOP
            seen_ := seen_ + 1;
            IF r.receipt IS NOT NULL AND r.lease > moment THEN
                UPDATE @schema@.workflow_queue x SET look = x.lease WHERE x.workflow = r.workflow AND x.queue = q;
                CONTINUE;
            END IF;
            claim := NULL;
            ends := NULL;
            busy_ := false;
            IF pg_try_advisory_xact_lock(hashtextextended(r.workflow, @lock@)) THEN
                PERFORM 1 FROM @schema@.workflow_checkpoint c WHERE c.workflow = r.workflow AND c.key = 'outcome:';
                IF FOUND THEN
                    DELETE FROM @schema@.workflow_queue x WHERE x.workflow = r.workflow AND x.queue = q;
                    CONTINUE;
                END IF;
                SELECT * INTO claim FROM @schema@.workflow_claim c WHERE c.workflow = r.workflow FOR NO KEY UPDATE SKIP LOCKED;
                IF NOT FOUND THEN
                    PERFORM 1 FROM @schema@.workflow_claim c WHERE c.workflow = r.workflow;
                    busy_ := FOUND;
                END IF;
            ELSE
                busy_ := true;
            END IF;
            at := clock_timestamp();
            IF busy_ THEN
                ends := at + interval '5 milliseconds';
                busy := true;
            END IF;
            IF claim.held AND at < least(claim.seen + claim.alive, claim.until) THEN
                ends := least(claim.seen + claim.alive, claim.until);
                IF NOT claim.wanted THEN
                    UPDATE @schema@.workflow_claim c SET wanted = true WHERE c.workflow = r.workflow;
                END IF;
            END IF;
            IF ends IS NOT NULL THEN
                UPDATE @schema@.workflow_queue x SET look = ends WHERE x.workflow = r.workflow AND x.queue = q;
                CONTINUE;
            END IF;
            token := nextval('@literal@.workflow_number');
            ends := at + lease_;
            INSERT INTO @schema@.workflow_claim AS c (workflow, token, held, until, alive, seen, wanted)
            VALUES (r.workflow, workflow_begin_v1.token, true, workflow_begin_v1.at + budget, lease_, workflow_begin_v1.at, false)
            ON CONFLICT ON CONSTRAINT workflow_claim_pkey DO UPDATE SET token = excluded.token, held = true,
                until = excluded.until, alive = excluded.alive, seen = excluded.seen, wanted = false;
            lapsed := CASE WHEN r.receipt IS NULL THEN 0 ELSE 1 END;
            workflow := r.workflow;
            attempt := r.attempt + lapsed;
            lapses := r.lapses + lapsed;
            due := r.due;
            UPDATE @schema@.workflow_queue x SET due = ends, look = ends, lease = ends, newer = false,
                attempt = x.attempt + lapsed, lapses = x.lapses + lapsed, receipt = workflow_begin_v1.token
            WHERE x.workflow = r.workflow AND x.queue = q;
            taken := taken + 1;
            SELECT count(*), coalesce(sum(octet_length(c.value)), 0) INTO found_rows, found_size
            FROM (SELECT c.value FROM @schema@.workflow_checkpoint c WHERE c.workflow = r.workflow LIMIT rows_ + 1) c;
            big := found_rows > rows_ OR found_size > size_;
            key := NULL;
            value := NULL;
            RETURN NEXT;
            IF NOT big AND found_rows > 0 THEN
                token := NULL;
                FOR p IN
                    SELECT c.key, c.value FROM @schema@.workflow_checkpoint c WHERE c.workflow = r.workflow ORDER BY c.seq
                LOOP
                    key := p.key;
                    value := p.value;
                    RETURN NEXT;
                END LOOP;
            END IF;
        END LOOP;
        EXIT WHEN seen_ = 0 OR taken >= most;
    END LOOP;
    IF taken = 0 THEN
        workflow := NULL;
        token := NULL;
        at := clock_timestamp();
        IF busy THEN
            due := at;
        ELSE
            SELECT min(x.look) INTO due FROM @schema@.workflow_queue x WHERE x.queue = q AND x.reason IS NULL;
        END IF;
        RETURN NEXT;
    END IF;
END $durable$;

-- Renew the claim, then the delivery. [DUR-KEEP]
CREATE FUNCTION @schema@.workflow_keep_turn_v1(w text, t bigint, q text, receipt_ bigint, lease_ interval) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET enable_seqscan = off AS $durable$
BEGIN
    IF NOT @schema@.workflow_keep_v1(w, t, NULL, lease_) THEN
        RETURN false;
    END IF;
    PERFORM @schema@.workflow_renew_v1(w, q, receipt_, lease_, false);
    RETURN true;
END $durable$;

-- Record the outcome, release, answer. State: 0 written, or equal; 1 lost, with what is stored. [DUR-FINISH] [DUR-TURN-FENCED]
CREATE FUNCTION @schema@.workflow_finish_v1(
    w text, t bigint, q text, receipt_ bigint, val text, OUT state integer, OUT stored text, OUT met boolean
) LANGUAGE plpgsql VOLATILE SET enable_seqscan = off AS $durable$
DECLARE
    held_ boolean;
BEGIN
    PERFORM @schema@.workflow_check_v1();
    DELETE FROM @schema@.workflow_queue r WHERE r.workflow = w AND r.queue = q AND r.receipt = receipt_;
    PERFORM pg_advisory_xact_lock(hashtextextended(w, @lock@));
    UPDATE @schema@.workflow_claim c SET held = false WHERE c.workflow = w AND c.token = t AND c.held RETURNING c.wanted INTO met;
    held_ := FOUND;
    state := 0;
    SELECT p.value INTO stored FROM @schema@.workflow_checkpoint p WHERE p.workflow = w AND p.key = 'outcome:';
    IF NOT FOUND THEN
        IF held_ THEN
            INSERT INTO @schema@.workflow_checkpoint (workflow, key, value, at) VALUES (w, 'outcome:', val, clock_timestamp());
        ELSE
            RAISE EXCEPTION 'fenced' USING ERRCODE = 'DU002';
        END IF;
    ELSE
        IF NOT held_ THEN
            PERFORM 1 FROM @schema@.workflow_claim c WHERE c.workflow = w AND c.token = t;
            IF NOT FOUND THEN
                RAISE EXCEPTION 'fenced' USING ERRCODE = 'DU002';
            END IF;
        END IF;
        IF stored = val THEN
            stored := NULL;
        ELSE
            state := 1;
        END IF;
    END IF;
    IF met THEN
        PERFORM @schema@.workflow_look_v1(w);
    END IF;
END $durable$;

-- Answer as `workflow_answer_v1` does, and release; true when there is something to look at. [DUR-PAUSE] [DUR-FAIL] [DUR-HAND-BACK]
CREATE FUNCTION @schema@.workflow_end_v1(
    w text, t bigint, q text, receipt_ bigint, due_ timestamptz, delay interval, attempt_ bigint, lapses_ bigint, reason_ text
) RETURNS boolean LANGUAGE plpgsql VOLATILE SET enable_seqscan = off AS $durable$
DECLARE
    again boolean;
BEGIN
    again := @schema@.workflow_answer_v1(w, q, receipt_, due_, delay, attempt_, lapses_, reason_);
    RETURN @schema@.workflow_release_v1(w, t) OR again;
END $durable$;

-- Begin an effect; no lock is held while it runs. State: 0 go on; 1 recorded, with what is stored; 2 fenced.
-- [CKP-TRANSACT-RECORDED] [CKP-TRANSACT-FENCED] [CKP-TRANSACT-OWN] [CKP-TRANSACT-LIVE]
CREATE FUNCTION @schema@.workflow_transact_v1(w text, t bigint, k text, OUT state integer, OUT stored text, OUT guard bigint)
LANGUAGE plpgsql VOLATILE SET enable_seqscan = off AS $durable$
DECLARE
    claim @schema@.workflow_claim;
BEGIN
    PERFORM @schema@.workflow_check_v1();
    SELECT * INTO claim FROM @schema@.workflow_claim c WHERE c.workflow = w AND c.token = t;
    IF NOT FOUND THEN
        state := 2;
        RETURN;
    END IF;
    SELECT p.value INTO stored FROM @schema@.workflow_checkpoint p WHERE p.workflow = w AND p.key = k;
    IF FOUND THEN
        state := 1;
        UPDATE @schema@.workflow_claim c SET seen = greatest(c.seen, clock_timestamp())
        WHERE c.workflow = w AND c.token = t AND c.held AND clock_timestamp() - c.seen >= c.alive / 3;
        RETURN;
    END IF;
    state := 0;
    guard := nextval('@literal@.workflow_number');
    INSERT INTO @schema@.workflow_guard (id) VALUES (workflow_transact_v1.guard);
END $durable$;

-- End an effect: under the position lock, with a snapshot taken after it. State: 0 recorded; 1 recorded by somebody else meanwhile; 2
-- fenced: then the guard stays, and no commit can be. [CKP-TRANSACT-FENCED] [CKP-TRANSACT-SUPPLIED] [CKP-TRANSACT-OWN]
CREATE FUNCTION @schema@.workflow_transacted_v1(w text, t bigint, k text, val text, guard_ bigint) RETURNS integer
LANGUAGE plpgsql VOLATILE SET enable_seqscan = off AS $durable$
DECLARE
    claim @schema@.workflow_claim;
    moment timestamptz;
BEGIN
    PERFORM 1 FROM @schema@.workflow_guard g WHERE g.id = guard_;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the effect ended its transaction' USING ERRCODE = 'DU003';
    END IF;
    PERFORM @schema@.workflow_check_v1();
    PERFORM pg_advisory_xact_lock(hashtextextended(w, @lock@));
    SELECT * INTO claim FROM @schema@.workflow_claim c WHERE c.workflow = w AND c.token = t;
    IF NOT FOUND THEN
        RETURN 2;
    END IF;
    PERFORM 1 FROM @schema@.workflow_checkpoint p WHERE p.workflow = w AND p.key = k;
    IF FOUND THEN
        RETURN 1;
    END IF;
    moment := clock_timestamp();
    INSERT INTO @schema@.workflow_checkpoint (workflow, key, value, at) VALUES (w, k, val, moment);
    IF claim.held AND moment - claim.seen >= claim.alive / 3 THEN
        UPDATE @schema@.workflow_claim c SET seen = greatest(c.seen, moment) WHERE c.workflow = w AND c.token = t AND c.held;
    END IF;
    DELETE FROM @schema@.workflow_guard g WHERE g.id = guard_;
    RETURN 0;
END $durable$;

-- Discard finished workflows that finished before an instant, after a place in the order of (at, workflow). [CAT-SWEEP]
CREATE FUNCTION @schema@.workflow_sweep_v1(before timestamptz, after_at timestamptz, after_workflow text, most integer)
RETURNS TABLE (at timestamptz, workflow text, swept boolean) LANGUAGE plpgsql VOLATILE SET enable_seqscan = off AS $durable$
DECLARE
    p record;
BEGIN
    PERFORM @schema@.workflow_check_v1();
    FOR p IN
        SELECT c.at, c.workflow FROM @schema@.workflow_checkpoint c
        WHERE c.key = 'outcome:' AND (c.at, c.workflow) > (after_at, after_workflow) AND c.at < before
        ORDER BY c.at, c.workflow LIMIT most
    LOOP
        at := p.at;
        workflow := p.workflow;
        swept := false;
        IF pg_try_advisory_xact_lock(hashtextextended(p.workflow, @lock@)) THEN
            PERFORM 1 FROM @schema@.workflow_queue r WHERE r.workflow = p.workflow;
            IF NOT FOUND THEN
                PERFORM 1 FROM @schema@.workflow_claim c WHERE c.workflow = p.workflow AND c.held
                    AND clock_timestamp() < least(c.seen + c.alive, c.until);
                IF NOT FOUND THEN
                    DELETE FROM @schema@.workflow_claim c WHERE c.workflow = p.workflow;
                    DELETE FROM @schema@.workflow_checkpoint c WHERE c.workflow = p.workflow;
                    swept := true;
                END IF;
            END IF;
        END IF;
        RETURN NEXT;
    END LOOP;
END $durable$;
