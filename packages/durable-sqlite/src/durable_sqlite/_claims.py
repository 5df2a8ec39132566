"""The claim of a workflow, inside an open transaction. A refusal comes before anything is written."""

from __future__ import annotations

from typing import NamedTuple

from durable_sqlite import _wakeups, sql
from durable_sqlite._tx import Tx


class Claim(NamedTuple):
    """The last token issued, whether its pass still holds it, and for how long."""

    token: int
    held: int
    until: int
    alive: int
    seen: int
    wanted: int

    def lapses(self) -> int:
        """Say when it lapses, should nothing more be heard. [CKP-CLAIM-LAPSE]"""
        return min(self.seen + self.alive, self.until)


def find(tx: Tx, workflow: str) -> Claim | None:
    """Give the claim, whoever has it."""
    rows: list[tuple[int, int, int, int, int, int]] = tx.execute(sql.CLAIM_ROW, (workflow,)).fetchall()
    return Claim(*rows[0]) if rows else None


def held_by(tx: Tx, workflow: str, token: int) -> Claim | None:
    """Give the claim if this is its last token: it may write even released. [CKP-RECORD-FENCED] [CKP-RECORD-LAPSED]"""
    claim = find(tx, workflow)
    return claim if claim is not None and claim.token == token else None


def live_until(tx: Tx, workflow: str) -> int | None:
    """Say when the live claim lapses, or `None` without one."""
    claim = find(tx, workflow)
    if claim is None or not claim.held:
        return None
    lapses = claim.lapses()
    return lapses if tx.now < lapses else None


def seen(tx: Tx, workflow: str, claim: Claim) -> None:
    """Take an accepted write as a sign of life, unless the last one is young. [CKP-RECORD-LIVE] [CKP-RELEASE-FINAL]"""
    if claim.held and tx.now - claim.seen >= claim.alive // 3:
        tx.execute(sql.SEEN, (tx.now, workflow))


def number(tx: Tx) -> int:
    """Give the next token or receipt. [CKP-CLAIM-RISING]"""
    last: int = tx.execute(sql.COUNTER).fetchone()[0]
    return last


def grant(tx: Tx, workflow: str, token: int, budget: int, alive: int) -> None:
    """Give the workflow to a new pass."""
    tx.execute(sql.CLAIM, (workflow, token, tx.now + budget, alive, tx.now))


def claim(tx: Tx, workflow: str, budget: int, alive: int) -> tuple[int, int] | None:
    """Give the token and the instant of a new pass, or `None` while another is live. [CKP-CLAIM-ONE]"""
    if live_until(tx, workflow) is not None:
        return None
    token = number(tx)
    grant(tx, workflow, token, budget, alive)
    return token, tx.now


def extend(tx: Tx, workflow: str, token: int, budget: int, alive: int) -> bool:
    """Grant more budget. [CKP-EXTEND-GRANT] [CKP-EXTEND-LAPSED] [CKP-HOLD-LOST]"""
    claim = held_by(tx, workflow, token)
    if claim is None or not claim.held:
        return False
    _keep(tx, workflow, claim, max(claim.until, tx.now + budget), alive)
    return True


def renew(tx: Tx, workflow: str, token: int, alive: int) -> bool:
    """Take a sign of life. [CKP-RENEW-LIVE] [CKP-RENEW-BUDGET] [CKP-HOLD-LOST]"""
    claim = held_by(tx, workflow, token)
    if claim is None or not claim.held or tx.now >= claim.until:
        return False
    _keep(tx, workflow, claim, claim.until, alive)
    return True


def _keep(tx: Tx, workflow: str, claim: Claim, until: int, alive: int) -> None:
    """Note a sign of life; whoever waits for the claim looks again where it lapses sooner now. [DUR-BEGIN]"""
    seen = max(claim.seen, tx.now)
    tx.execute(sql.KEEP, (until, alive, seen, workflow))
    if claim.wanted and min(seen + alive, until) < claim.lapses():
        _wakeups.uncontended(tx, workflow)


def release(tx: Tx, workflow: str, token: int) -> None:
    """Take the claim back, and let whoever waits for it look again. [CKP-RELEASE-FREE]"""
    claim = held_by(tx, workflow, token)
    if claim is not None and claim.held:
        released(tx, workflow, claim)


def released(tx: Tx, workflow: str, claim: Claim) -> None:
    """Take back a claim that is held."""
    tx.execute(sql.RELEASE, (workflow,))
    if claim.wanted:
        _wakeups.uncontended(tx, workflow)
