"""One turn, from the call of the body to the answer that the store took."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, TypeVar

from durable_core._answers import Answer, Fail, Finish, HandBack, answer_to, answer_to_failure, failures, send
from durable_core._heartbeat import Heartbeat
from durable_core._live import Live
from durable_core._outage import Outage
from durable_core._retry import Kinds, Retry, reason_of, where
from durable_core.contract import Durable, Turn
from durable_core.errors import Contended, DurableError, Fenced
from durable_core.observer import Buried, ClaimLost, Observer, PassBegan, PassEnded, PutBack, Retried, log, notify
from durable_core.resume import Advance
from durable_core.run import Run

E = TypeVar("E")

_LOST_AGAIN_IN = timedelta(seconds=1)
_REFUSALS = 3


@dataclass(frozen=True, slots=True)
class Settings:
    """What a worker was given."""

    limit: int
    budget: timedelta
    lease: timedelta
    retry: Retry
    give_up_on: Kinds
    lapses_alone: int
    grace: timedelta
    observer: Observer | None
    monotonic: Callable[[], float]


class Turns(Generic[E]):
    """Advances turns and answers them. [RUN-WORK] [RUN-WORK-RETRY]"""

    def __init__(self, durable: Durable[E], settings: Settings, heartbeat: Heartbeat[E], outage: Outage) -> None:
        self._durable, self._settings, self._heartbeat, self._outage = durable, settings, heartbeat, outage
        self._observer = settings.observer
        self.interrupted: KeyboardInterrupt | None = None

    def __repr__(self) -> str:
        return f"Turns({self._durable!r})"

    async def advance(self, live: Live, body: Callable[[Run[E]], Awaitable[object]]) -> None:
        """Let the body run, and answer. Cancelling this hands the turn back."""
        holder, delivery = live.turn.holder, live.turn.delivery
        if self._observer is not None:
            notify(self._observer, PassBegan(holder.workflow, holder.token, delivery.attempt))
        answer = await self._passed(live, body)
        sent = await self._answered(live, answer)
        if self._observer is not None:
            notify(self._observer, PassEnded(holder.workflow, holder.token, "lost" if sent is None else sent.ending))

    async def answer(self, live: Live, answer: Answer) -> None:
        """Answer without a pass."""
        await self._answered(live, answer)

    async def _passed(self, live: Live, body: Callable[[Run[E]], Awaitable[object]]) -> Answer:
        try:
            records = await self._records(live.turn)
            live.advance = advance = Advance(self._durable.checkpointer, live.pulse, records, self._observer)
            return answer_to(await advance.outcome(body))
        except asyncio.CancelledError:
            return self._after_loss(live) if live.lost else HandBack("the worker ends")
        except (Fenced, Contended) as lost:
            live.note_lost(() if lost.key is None else (lost.key,))
            return self._after_loss(live)
        except KeyboardInterrupt as interrupted:  # it ends whoever runs the loop, and says nothing of this workflow
            self.interrupted = interrupted
            return HandBack("the worker was interrupted")
        except BaseException as error:
            return answer_to_failure(error, live.turn.delivery, self._settings.retry, self._settings.give_up_on)

    async def _records(self, turn: Turn) -> Mapping[str, object]:
        if turn.records is not None:
            return turn.records
        task = asyncio.current_task()
        before = 0 if task is None else task.cancelling()
        records = await self._durable.checkpointer.load(turn.holder.workflow)
        if task is not None and task.cancelling() > before:  # Python 3.11 may swallow a cancellation in there
            raise asyncio.CancelledError
        return records

    def _after_loss(self, live: Live) -> Answer:
        """Give the answer to a pass that lost its claim. [RUN-STEP-BUDGET] [DUR-HAND-BACK]"""
        holder = live.turn.holder
        extra = {"durable_workflow": holder.workflow, "durable_token": holder.token, "durable_at_work": live.at_work}
        log.warning("a pass lost its workflow", extra=extra)
        notify(self._observer, ClaimLost(holder.workflow, holder.token))
        if not live.spent:
            return HandBack("the claim was lost", _LOST_AGAIN_IN, "lost")
        steps = ", ".join(repr(key) for key in live.at_work)
        what = f"with {steps} at work" if steps else "with no step at work"
        reason = f"the pass ran out of its budget of {self._settings.budget} {what}"
        return Fail(reason, self._settings.retry.again_in(failures(live.turn.delivery)))

    async def _answered(self, live: Live, answer: Answer) -> Answer | None:
        """Give the answer that the store took, or `None`: then the workflow comes back when the lease is over."""
        live.answering(self._settings.monotonic(), self._settings.lease / 3)
        cancelled, taken = 0, None
        while cancelled < _REFUSALS and not live.expired:
            try:
                taken = await self._sent(live, answer)
                break
            except asyncio.CancelledError:  # to ask again is safe, and a turn unanswered would lapse
                cancelled += 1
        self._say(live, taken)
        return taken

    async def _sent(self, live: Live, answer: Answer) -> Answer | None:
        refusals = tries = 0
        while True:
            try:
                if live.renewal is not None:
                    await self._renewed(live, live.renewal)
                await send(self._durable, live.turn, answer)
                return answer
            except Fenced:
                if isinstance(answer, HandBack):
                    return None
                live.note_lost(())
                answer = HandBack("the claim was lost", _LOST_AGAIN_IN, "lost")
                continue
            except DurableError as error:
                refused: Exception = error
                refusals = _REFUSALS
            except Exception as error:
                refused = error
                tries += 1
                refusals += await self._is_there(live)
                await asyncio.sleep(self._outage.delay(tries))
            if refusals >= _REFUSALS:
                if not isinstance(answer, Finish):
                    return None
                answer, refusals = self._not_recorded(live, refused), 0

    async def _renewed(self, live: Live, renewal: asyncio.Task[None]) -> None:
        """Let a renewal that is under way end, for a while: a store may name the delivery anew when it is renewed."""
        if not live.lost:
            await asyncio.wait((renewal,), timeout=self._settings.lease.total_seconds() / 12)
        renewal.cancel()
        await asyncio.wait((renewal,))

    def _not_recorded(self, live: Live, error: Exception) -> Fail:
        failed = answer_to_failure(error, live.turn.delivery, self._settings.retry, self._settings.give_up_on)
        return Fail(
            reason_of(error) if isinstance(error, DurableError) else f"the outcome was refused: {failed.reason}"[:4_000],
            failed.again_in,
            error,
        )

    async def _is_there(self, live: Live) -> bool:
        """Ask, by a renewal, whether it is the store that does not answer, or only this answer that it does not take."""
        sent = self._settings.monotonic()
        try:
            renewed = await self._durable.renew(live.turn)
        except Exception as error:
            self._outage.lost("renew", error)
            return False
        self._outage.answered("renew")
        if renewed is not None:
            live.turn = renewed
            live.pulse.confirm(sent)
        return True

    def _say(self, live: Live, taken: Answer | None) -> None:
        delivery = live.turn.delivery
        workflow, attempt = delivery.workflow, delivery.attempt
        extra: dict[str, object] = {
            "durable_workflow": workflow,
            "durable_token": live.turn.holder.token,
            "durable_attempt": attempt,
        }
        match taken:
            case None:
                log.warning("a pass could not be answered for; the workflow comes back once its lease is over", extra=extra)
            case Fail(reason, again_in, error):
                if error is not None:
                    extra |= {"durable_error": type(error).__name__, "durable_where": where(error)}
                if again_in is None:
                    log.error("a workflow was buried", extra=extra)
                    notify(self._observer, Buried(workflow, reason, attempt))
                else:
                    log.warning("an attempt failed", extra=extra | {"durable_again_in": again_in.total_seconds()})
                    notify(self._observer, Retried(workflow, reason, attempt, again_in))
            case HandBack(reason, again_in):
                log.info("a workflow was handed back", extra=extra | {"durable_again_in": again_in.total_seconds()})
                notify(self._observer, PutBack(workflow, reason, again_in))
            case _:
                pass
