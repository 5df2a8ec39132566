-- The operations that need a snapshot taken after their locks, as functions. A function that changes gets a new name.
--
-- One lock order everywhere: rows of the queue, position lock of the workflow, claim row, records.
-- SQLSTATEs of ours: DU001 another isolation than READ COMMITTED, DU002 fenced, DU003 the effect ended its transaction,
-- DU004 recorded meanwhile, DU005 the inbox is full, DU006 the position lock is held for long.

-- Refuse where one statement's snapshot would be older than its locks.
CREATE FUNCTION @schema@.workflow_check_v1() RETURNS void LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'durable needs READ COMMITTED' USING ERRCODE = 'DU001';
    END IF;
END $$;

-- The number of a workflow's position lock.
CREATE FUNCTION @schema@.workflow_lock_v1(w text) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT hashtextextended(w, 7041988312)
$$;

-- Record many: for each item, under the position lock of its workflow. `tokens` holds NULL for a supply. With `patient` false a
-- workflow whose lock is taken is left alone. State: 0 written, or equal; 1 lost, with what is stored; 2 fenced; 3 busy.
-- Items of one workflow stand together. [CKP-RECORD-ONCE] [CKP-RECORD-FENCED] [CKP-RECORD-CONCURRENT] [CKP-RECORD-LIVE]
CREATE FUNCTION @schema@.workflow_record_v1(workflows text[], tokens bigint[], keys text[], vals text[], patient boolean)
RETURNS TABLE (state integer, stored text) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    here text;
    locked boolean;
    claim @schema@.workflow_claim;
    moment timestamptz;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM @schema@.workflow_check_v1();
    END IF;
    FOR i IN 1 .. array_length(workflows, 1) LOOP
        IF here IS DISTINCT FROM workflows[i] THEN
            here := workflows[i];
            IF patient THEN
                PERFORM pg_advisory_xact_lock(hashtextextended(here, 7041988312));
                locked := true;
            ELSE
                locked := pg_try_advisory_xact_lock(hashtextextended(here, 7041988312));
            END IF;
            claim := NULL;
            IF locked THEN
                SELECT * INTO claim FROM @schema@.workflow_claim c WHERE c.workflow = here;
            END IF;
            moment := clock_timestamp();
        END IF;
        stored := NULL;
        IF NOT locked THEN
            state := 3;
        ELSIF tokens[i] IS NOT NULL AND claim.token IS DISTINCT FROM tokens[i] THEN
            state := 2;
        ELSE
            SELECT p.value INTO stored FROM @schema@.workflow_checkpoint p WHERE p.workflow = here AND p.key = keys[i];
            IF NOT FOUND THEN
                INSERT INTO @schema@.workflow_checkpoint (workflow, key, value, at) VALUES (here, keys[i], vals[i], moment);
                state := 0;
            ELSIF stored = vals[i] THEN
                state := 0;
                stored := NULL;
            ELSE
                state := 1;
            END IF;
            IF tokens[i] IS NOT NULL AND claim.held AND moment - claim.seen >= claim.alive / 3 THEN
                UPDATE @schema@.workflow_claim c SET seen = greatest(c.seen, moment)
                WHERE c.workflow = here AND c.token = tokens[i] AND c.held;
                claim.seen := moment;
            END IF;
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;

-- Add an entry above every other, or give the one that `sender` made; the caller holds the rows of the queue it needs.
-- [CKP-APPEND-ABOVE] [CKP-APPEND-ONCE] [CKP-APPEND-SORTED]
CREATE FUNCTION @schema@.workflow_append_v1(w text, val text, sender text) RETURNS TABLE (key text, value text)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    last text;
    number numeric;
BEGIN
    PERFORM @schema@.workflow_check_v1();
    PERFORM pg_advisory_xact_lock(hashtextextended(w, 7041988312));
    IF sender IS NOT NULL THEN
        SELECT p.key, p.value INTO key, value FROM @schema@.workflow_checkpoint p WHERE p.workflow = w AND p.once = sender;
        IF FOUND THEN
            RETURN NEXT;
            RETURN;
        END IF;
    END IF;
    SELECT p.key INTO last FROM @schema@.workflow_checkpoint p
    WHERE p.workflow = w AND p.key >= 'inbox:' AND p.key < 'inbox;' ORDER BY p.key DESC LIMIT 1;
    number := coalesce(substr(last, 7)::numeric, 0) + 1;
    IF number >= 9007199254740992 THEN
        RAISE EXCEPTION 'the inbox is full' USING ERRCODE = 'DU005';
    END IF;
    key := 'inbox:' || lpad(number::text, 20, '0');
    value := val;
    INSERT INTO @schema@.workflow_checkpoint (workflow, key, value, at, once)
    VALUES (w, workflow_append_v1.key, val, clock_timestamp(), sender);
    RETURN NEXT;
END $$;

-- Let a workflow run. [SCH-READY-EVENTUALLY] [SCH-READY-COALESCE]
CREATE FUNCTION @schema@.workflow_make_ready_v1(w text, q text, again boolean) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    moment timestamptz;
BEGIN
    PERFORM @schema@.workflow_check_v1();
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
            WHEN again AND r.reason IS NOT NULL THEN excluded.look
            WHEN r.receipt IS NULL AND r.reason IS NULL AND r.due > excluded.due THEN excluded.look
            ELSE r.look END,
        attempt = CASE WHEN again AND r.reason IS NOT NULL THEN 1 ELSE r.attempt END,
        lapses = CASE WHEN again AND r.reason IS NOT NULL THEN 0 ELSE r.lapses END,
        reason = CASE WHEN again THEN NULL ELSE r.reason END;
END $$;

-- [DUR-ARRIVE]
CREATE FUNCTION @schema@.workflow_arrive_v1(w text, q text, k text, val text) RETURNS TABLE (state integer, stored text)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM @schema@.workflow_make_ready_v1(w, q, false);
    RETURN QUERY SELECT r.state, r.stored
    FROM @schema@.workflow_record_v1(ARRAY[w], ARRAY[NULL]::bigint[], ARRAY[k], ARRAY[val], true) r;
END $$;

-- [DUR-DELIVER]
CREATE FUNCTION @schema@.workflow_deliver_v1(w text, q text, val text, sender text) RETURNS TABLE (key text, value text)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM @schema@.workflow_make_ready_v1(w, q, false);
    RETURN QUERY SELECT r.key, r.value FROM @schema@.workflow_append_v1(w, val, sender) r;
END $$;

-- Forget records and claim; `q`, when it is given, is the queue whose wakeup goes too.
-- [CKP-DISCARD-ALL] [CKP-DISCARD-FENCE] [DUR-DELETE]
CREATE FUNCTION @schema@.workflow_discard_v1(w text, q text) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    gone bigint;
    met boolean;
BEGIN
    PERFORM @schema@.workflow_check_v1();
    PERFORM 1 FROM @schema@.workflow_queue r WHERE r.workflow = w ORDER BY r.queue FOR UPDATE;
    IF q IS NOT NULL THEN
        DELETE FROM @schema@.workflow_queue r WHERE r.workflow = w AND r.queue = q;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended(w, 7041988312));
    DELETE FROM @schema@.workflow_claim c WHERE c.workflow = w RETURNING c.wanted INTO met;
    IF met THEN
        UPDATE @schema@.workflow_queue r SET look = r.due WHERE r.workflow = w AND r.receipt IS NULL AND r.look <> r.due;
    END IF;
    DELETE FROM @schema@.workflow_checkpoint p WHERE p.workflow = w;
    GET DIAGNOSTICS gone = ROW_COUNT;
    RETURN gone;
END $$;

-- Take a workflow for one pass; no row while another is live. [CKP-CLAIM-ONE] [CKP-CLAIM-RISING] [CKP-CLAIM-REFUSED]
CREATE FUNCTION @schema@.workflow_claim_v1(w text, budget interval, window_ interval)
RETURNS TABLE (token bigint, at timestamptz) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    claim @schema@.workflow_claim;
BEGIN
    PERFORM @schema@.workflow_check_v1();
    IF NOT pg_try_advisory_xact_lock(hashtextextended(w, 7041988312)) THEN
        PERFORM set_config('lock_timeout', '2s', true);
        BEGIN
            PERFORM pg_advisory_xact_lock(hashtextextended(w, 7041988312));
        EXCEPTION WHEN lock_not_available THEN
            RETURN;
        END;
    END IF;
    SELECT * INTO claim FROM @schema@.workflow_claim c WHERE c.workflow = w FOR UPDATE;
    at := clock_timestamp();
    IF claim.held AND at < least(claim.seen + claim.alive, claim.until) THEN
        RETURN;
    END IF;
    token := nextval('@schema@.workflow_number');
    INSERT INTO @schema@.workflow_claim AS c (workflow, token, held, until, alive, seen, wanted)
    VALUES (w, workflow_claim_v1.token, true, workflow_claim_v1.at + budget, window_, workflow_claim_v1.at, false)
    ON CONFLICT (workflow) DO UPDATE SET token = excluded.token, held = true, until = excluded.until,
        alive = excluded.alive, seen = excluded.seen, wanted = false;
    RETURN NEXT;
END $$;

-- Note a sign of life, and with `budget` a longer one; false when the claim is not held by this token any more.
-- [CKP-EXTEND-GRANT] [CKP-RENEW-LIVE] [CKP-RENEW-BUDGET] [CKP-HOLD-LOST]
CREATE FUNCTION @schema@.workflow_keep_v1(w text, t bigint, budget interval, window_ interval) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    claim @schema@.workflow_claim;
    moment timestamptz;
    sooner boolean;
BEGIN
    PERFORM @schema@.workflow_check_v1();
    SELECT * INTO claim FROM @schema@.workflow_claim c WHERE c.workflow = w;
    IF claim.wanted AND window_ < claim.alive THEN -- it may lapse sooner now, and somebody waits for that
        PERFORM 1 FROM @schema@.workflow_queue r WHERE r.workflow = w ORDER BY r.queue FOR UPDATE;
    END IF;
    SELECT * INTO claim FROM @schema@.workflow_claim c WHERE c.workflow = w AND c.token = t AND c.held FOR NO KEY UPDATE;
    moment := clock_timestamp();
    IF NOT FOUND OR (budget IS NULL AND moment >= claim.until) THEN
        RETURN false;
    END IF;
    sooner := claim.wanted AND window_ < claim.alive;
    UPDATE @schema@.workflow_claim c SET
        until = CASE WHEN budget IS NULL THEN c.until ELSE greatest(c.until, moment + budget) END,
        alive = window_, seen = greatest(c.seen, moment)
    WHERE c.workflow = w;
    IF sooner THEN
        UPDATE @schema@.workflow_queue r SET look = r.due WHERE r.workflow = w AND r.receipt IS NULL AND r.look <> r.due;
    END IF;
    RETURN true;
END $$;

-- Give the claim back, and let whoever met it look again. The caller holds the rows of the queue. [CKP-RELEASE-FREE]
CREATE FUNCTION @schema@.workflow_released_v1(w text, t bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    met boolean;
BEGIN
    SELECT c.wanted INTO met FROM @schema@.workflow_claim c WHERE c.workflow = w AND c.token = t AND c.held FOR NO KEY UPDATE;
    IF FOUND THEN
        UPDATE @schema@.workflow_claim c SET held = false, wanted = false WHERE c.workflow = w;
        IF met THEN
            UPDATE @schema@.workflow_queue r SET look = r.due WHERE r.workflow = w AND r.receipt IS NULL AND r.look <> r.due;
        END IF;
    END IF;
END $$;

CREATE FUNCTION @schema@.workflow_release_v1(w text, t bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM @schema@.workflow_check_v1();
    PERFORM 1 FROM @schema@.workflow_queue r WHERE r.workflow = w ORDER BY r.queue FOR UPDATE;
    PERFORM @schema@.workflow_released_v1(w, t);
END $$;

-- Take what is due of a queue; a delivery whose lease was renewed is looked at again when that ends.
-- [SCH-NEXT-OLDEST] [SCH-NEXT-ONE] [SCH-NEXT-LAPSED] [SCH-NEXT-DEEP]
CREATE FUNCTION @schema@.workflow_next_ready_v1(q text, lease interval)
RETURNS TABLE (workflow text, receipt bigint, attempt bigint, lapses bigint, due timestamptz, moment timestamptz)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    r @schema@.workflow_queue;
BEGIN
    PERFORM @schema@.workflow_check_v1();
    moment := clock_timestamp();
    LOOP
        SELECT * INTO r FROM @schema@.workflow_queue x WHERE x.queue = q AND x.reason IS NULL AND x.look <= moment
        ORDER BY x.look LIMIT 1 FOR UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            SELECT min(x.look) INTO due FROM @schema@.workflow_queue x WHERE x.queue = q AND x.reason IS NULL;
            RETURN NEXT;
            RETURN;
        END IF;
        IF r.receipt IS NOT NULL AND r.lease > moment THEN
            UPDATE @schema@.workflow_queue x SET look = x.lease WHERE x.workflow = r.workflow AND x.queue = q;
        ELSE
            workflow := r.workflow;
            receipt := nextval('@schema@.workflow_number');
            attempt := r.attempt + CASE WHEN r.receipt IS NULL THEN 0 ELSE 1 END;
            lapses := r.lapses + CASE WHEN r.receipt IS NULL THEN 0 ELSE 1 END;
            due := r.due;
            UPDATE @schema@.workflow_queue x SET due = moment + workflow_next_ready_v1.lease,
                look = moment + workflow_next_ready_v1.lease, lease = moment + workflow_next_ready_v1.lease,
                attempt = workflow_next_ready_v1.attempt, lapses = workflow_next_ready_v1.lapses,
                receipt = workflow_next_ready_v1.receipt, newer = false
            WHERE x.workflow = r.workflow AND x.queue = q;
            RETURN NEXT;
            RETURN;
        END IF;
    END LOOP;
END $$;

-- Keep a delivery for another lease; a row that somebody holds is left for the next renewal. [SCH-RENEW-SILENT]
CREATE FUNCTION @schema@.workflow_renew_v1(w text, q text, receipt_ bigint, lease_ interval) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM @schema@.workflow_check_v1();
    PERFORM 1 FROM @schema@.workflow_queue r WHERE r.workflow = w AND r.queue = q AND r.receipt = receipt_ FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
        UPDATE @schema@.workflow_queue r SET lease = greatest(r.lease, clock_timestamp() + lease_)
        WHERE r.workflow = w AND r.queue = q;
    END IF;
END $$;

-- Answer for a delivery. `due_` NULL: nothing further; `delay` counts from now; `reason_`: set it aside.
-- [SCH-WAKE-ANSWERS] [SCH-WAKE-NEWER] [SCH-WAKE-STALE] [SCH-WAKE-CANCELLED] [SCH-DONE-NEWER] [SCH-BURY-KEEPS]
CREATE FUNCTION @schema@.workflow_answer_v1(
    w text, q text, receipt_ bigint, due_ timestamptz, delay interval, attempt_ bigint, lapses_ bigint, reason_ text
) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    more boolean;
    moment timestamptz;
    target timestamptz;
BEGIN
    PERFORM @schema@.workflow_check_v1();
    SELECT r.newer INTO more FROM @schema@.workflow_queue r
    WHERE r.workflow = w AND r.queue = q AND r.receipt = receipt_ FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    moment := clock_timestamp();
    IF reason_ IS NOT NULL THEN
        UPDATE @schema@.workflow_queue r SET reason = reason_, receipt = NULL, lease = NULL WHERE r.workflow = w AND r.queue = q;
        RETURN;
    END IF;
    target := coalesce(due_, moment + delay);
    IF target IS NULL AND NOT more THEN
        DELETE FROM @schema@.workflow_queue r WHERE r.workflow = w AND r.queue = q;
        RETURN;
    END IF;
    IF target IS NULL OR more THEN
        target := least(target, moment);
    END IF;
    UPDATE @schema@.workflow_queue r SET due = target, look = target, receipt = NULL, lease = NULL, newer = false,
        attempt = attempt_, lapses = lapses_
    WHERE r.workflow = w AND r.queue = q;
END $$;

-- Take, claim and load up to `most` workflows. A row with a token begins a turn, and its records follow it; `big` says that they
-- are too many. A row without a workflow ends the answer with the next instant to look. [DUR-BEGIN] [DUR-BEGIN-FRESH]
CREATE FUNCTION @schema@.workflow_begin_v1(q text, lease interval, budget interval, most integer, rows_ integer, size_ bigint)
RETURNS TABLE (
    workflow text, token bigint, at timestamptz, receipt bigint, attempt bigint, lapses bigint, due timestamptz, big boolean,
    key text, value text
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    r @schema@.workflow_queue;
    claim @schema@.workflow_claim;
    p record;
    taken integer := 0;
    moment timestamptz := clock_timestamp();
    ends timestamptz;
    found_rows integer;
    found_size bigint;
BEGIN
    PERFORM @schema@.workflow_check_v1();
    FOR r IN
        SELECT * FROM @schema@.workflow_queue x WHERE x.queue = q AND x.reason IS NULL AND x.look <= moment
        ORDER BY x.look LIMIT most * 2 + 8 FOR UPDATE SKIP LOCKED
    LOOP
        EXIT WHEN taken >= most;
        IF r.receipt IS NOT NULL AND r.lease > clock_timestamp() THEN
            UPDATE @schema@.workflow_queue x SET look = x.lease WHERE x.workflow = r.workflow AND x.queue = q;
            CONTINUE;
        END IF;
        IF NOT pg_try_advisory_xact_lock(hashtextextended(r.workflow, 7041988312)) THEN
            CONTINUE; -- a commit is in flight: next time
        END IF;
        PERFORM 1 FROM @schema@.workflow_checkpoint c WHERE c.workflow = r.workflow AND c.key = 'outcome:';
        IF FOUND THEN
            DELETE FROM @schema@.workflow_queue x WHERE x.workflow = r.workflow AND x.queue = q;
            CONTINUE;
        END IF;
        SELECT * INTO claim FROM @schema@.workflow_claim c WHERE c.workflow = r.workflow FOR UPDATE;
        at := clock_timestamp();
        ends := least(claim.seen + claim.alive, claim.until);
        IF claim.held AND at < ends THEN
            UPDATE @schema@.workflow_claim c SET wanted = true WHERE c.workflow = r.workflow AND NOT c.wanted;
            UPDATE @schema@.workflow_queue x SET look = ends WHERE x.workflow = r.workflow AND x.queue = q;
            CONTINUE;
        END IF;
        token := nextval('@schema@.workflow_number');
        INSERT INTO @schema@.workflow_claim AS c (workflow, token, held, until, alive, seen, wanted)
        VALUES (r.workflow, workflow_begin_v1.token, true, workflow_begin_v1.at + budget, workflow_begin_v1.lease,
                workflow_begin_v1.at, false)
        ON CONFLICT ON CONSTRAINT workflow_claim_pkey DO UPDATE SET token = excluded.token, held = true, until = excluded.until,
            alive = excluded.alive, seen = excluded.seen, wanted = false;
        workflow := r.workflow;
        receipt := token;
        attempt := r.attempt + CASE WHEN r.receipt IS NULL THEN 0 ELSE 1 END;
        lapses := r.lapses + CASE WHEN r.receipt IS NULL THEN 0 ELSE 1 END;
        due := r.due;
        ends := at + workflow_begin_v1.lease;
        UPDATE @schema@.workflow_queue x SET due = ends, look = ends, lease = ends, newer = false,
            attempt = workflow_begin_v1.attempt, lapses = workflow_begin_v1.lapses, receipt = workflow_begin_v1.receipt
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
            FOR p IN SELECT c.key, c.value FROM @schema@.workflow_checkpoint c WHERE c.workflow = r.workflow ORDER BY c.seq LOOP
                key := p.key;
                value := p.value;
                RETURN NEXT;
            END LOOP;
        END IF;
    END LOOP;
    IF taken = 0 THEN
        workflow := NULL;
        token := NULL;
        at := clock_timestamp();
        SELECT min(x.look) INTO due FROM @schema@.workflow_queue x WHERE x.queue = q AND x.reason IS NULL;
        RETURN NEXT;
    END IF;
END $$;

-- Renew the claim, then the delivery. [DUR-KEEP]
CREATE FUNCTION @schema@.workflow_keep_turn_v1(w text, t bigint, q text, receipt_ bigint, lease_ interval) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF NOT @schema@.workflow_keep_v1(w, t, NULL, lease_) THEN
        RETURN false;
    END IF;
    PERFORM @schema@.workflow_renew_v1(w, q, receipt_, lease_);
    RETURN true;
END $$;

-- Record the outcome, release, answer. State: 0 written, or equal; 1 lost, with what is stored; 2 fenced.
-- [DUR-FINISH] [DUR-TURN-FENCED]
CREATE FUNCTION @schema@.workflow_finish_v1(w text, t bigint, q text, receipt_ bigint, val text)
RETURNS TABLE (state integer, stored text) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    claim @schema@.workflow_claim;
    recorded boolean;
BEGIN
    PERFORM @schema@.workflow_check_v1();
    PERFORM 1 FROM @schema@.workflow_queue r WHERE r.workflow = w ORDER BY r.queue FOR UPDATE;
    PERFORM pg_advisory_xact_lock(hashtextextended(w, 7041988312));
    SELECT * INTO claim FROM @schema@.workflow_claim c WHERE c.workflow = w AND c.token = t FOR UPDATE;
    IF NOT FOUND THEN
        state := 2;
        RETURN NEXT;
        RETURN;
    END IF;
    SELECT p.value INTO stored FROM @schema@.workflow_checkpoint p WHERE p.workflow = w AND p.key = 'outcome:';
    recorded := FOUND;
    IF NOT claim.held AND NOT recorded THEN
        state := 2;
        RETURN NEXT;
        RETURN;
    END IF;
    IF NOT recorded THEN
        INSERT INTO @schema@.workflow_checkpoint (workflow, key, value, at) VALUES (w, 'outcome:', val, clock_timestamp());
    END IF;
    IF recorded AND stored <> val THEN
        state := 1;
    ELSE
        state := 0;
        stored := NULL;
    END IF;
    PERFORM @schema@.workflow_released_v1(w, t);
    DELETE FROM @schema@.workflow_queue r WHERE r.workflow = w AND r.queue = q AND r.receipt = receipt_;
    RETURN NEXT;
END $$;

-- Release, and answer as `workflow_answer_v1` does. [DUR-PAUSE] [DUR-FAIL] [DUR-HAND-BACK]
CREATE FUNCTION @schema@.workflow_end_v1(
    w text, t bigint, q text, receipt_ bigint, due_ timestamptz, delay interval, attempt_ bigint, lapses_ bigint, reason_ text
) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM @schema@.workflow_check_v1();
    PERFORM 1 FROM @schema@.workflow_queue r WHERE r.workflow = w ORDER BY r.queue FOR UPDATE;
    PERFORM @schema@.workflow_released_v1(w, t);
    PERFORM @schema@.workflow_answer_v1(w, q, receipt_, due_, delay, attempt_, lapses_, reason_);
END $$;

-- Begin an effect: no lock is held meanwhile. State: 0 go on; 1 recorded, with what is stored; 2 fenced.
-- [CKP-TRANSACT-RECORDED] [CKP-TRANSACT-FENCED] [CKP-TRANSACT-OWN]
CREATE FUNCTION @schema@.workflow_transact_v1(w text, t bigint, k text)
RETURNS TABLE (state integer, stored text, guard bigint) LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM @schema@.workflow_check_v1();
    PERFORM 1 FROM @schema@.workflow_claim c WHERE c.workflow = w AND c.token = t;
    IF NOT FOUND THEN
        state := 2;
    ELSE
        SELECT p.value INTO stored FROM @schema@.workflow_checkpoint p WHERE p.workflow = w AND p.key = k;
        IF FOUND THEN
            state := 1;
        ELSE
            state := 0;
            guard := nextval('@schema@.workflow_number');
            INSERT INTO @schema@.workflow_guard (id) VALUES (workflow_transact_v1.guard);
        END IF;
    END IF;
    RETURN NEXT;
END $$;

-- End an effect: under the position lock, with a snapshot taken after it; whatever raises undoes the effect.
-- [CKP-TRANSACT-FENCED] [CKP-TRANSACT-SUPPLIED] [CKP-TRANSACT-OWN] [CKP-TRANSACT-LIVE]
CREATE FUNCTION @schema@.workflow_transacted_v1(w text, t bigint, k text, val text, guard bigint) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    claim @schema@.workflow_claim;
    moment timestamptz;
BEGIN
    DELETE FROM @schema@.workflow_guard g WHERE g.id = guard;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the effect ended its transaction' USING ERRCODE = 'DU003';
    END IF;
    PERFORM @schema@.workflow_check_v1();
    PERFORM pg_advisory_xact_lock(hashtextextended(w, 7041988312));
    SELECT * INTO claim FROM @schema@.workflow_claim c WHERE c.workflow = w AND c.token = t;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'fenced' USING ERRCODE = 'DU002';
    END IF;
    PERFORM 1 FROM @schema@.workflow_checkpoint p WHERE p.workflow = w AND p.key = k;
    IF FOUND THEN
        RAISE EXCEPTION 'recorded meanwhile' USING ERRCODE = 'DU004';
    END IF;
    moment := clock_timestamp();
    INSERT INTO @schema@.workflow_checkpoint (workflow, key, value, at) VALUES (w, k, val, moment);
    IF claim.held AND moment - claim.seen >= claim.alive / 3 THEN
        UPDATE @schema@.workflow_claim c SET seen = greatest(c.seen, moment) WHERE c.workflow = w AND c.token = t AND c.held;
    END IF;
END $$;

-- Discard finished workflows that finished before an instant, after a place in the order of (at, workflow). [CAT-SWEEP]
CREATE FUNCTION @schema@.workflow_sweep_v1(before timestamptz, after_at timestamptz, after_workflow text, most integer)
RETURNS TABLE (at timestamptz, workflow text, swept boolean) LANGUAGE plpgsql VOLATILE AS $$
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
        IF pg_try_advisory_xact_lock(hashtextextended(p.workflow, 7041988312)) THEN
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
END $$;
