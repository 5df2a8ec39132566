"""describe: what the store says of itself, held to it both ways."""

from __future__ import annotations

from datetime import timedelta

from durable_conformance.bench import Bench
from durable_conformance.case import shows
from durable_conformance.expect import Broken, answers, holds, raises, same
from durable_conformance.suite._common import joins, lists, never_transacts, splits, transacts
from durable_core.contract import Description
from durable_core.errors import Misconfigured

WORDS = ("no", "unknown", "yes")


@shows("DUR-DESCRIBE")
async def it_is_a_description(bench: Bench) -> None:
    """All three answer: product and version are named, the words are yes, no or unknown, the poll interval is not negative."""
    for part in (bench.durable, bench.checkpointer, bench.scheduler):
        said = await answers(part.describe(), "describe")
        holds(type(said) is Description, "describe gives a Description", said)
        holds(bool(said.product and said.version), "product and version are named", said)
        for word in (said.survives_kill, said.survives_power_cut, said.survives_failover):
            holds(word in WORDS, f"one of {WORDS}", word)
        holds(said.poll >= timedelta(0), "the poll interval is not negative", said.poll)
        for flag in (said.transacts, said.undoes, said.interleaves, said.co_commits, said.joins, said.lists):
            holds(type(flag) is bool, "a capability is True or False", flag)
        holds(said.transacts or not (said.undoes or said.interleaves), "nothing is undone or interleaved without effects", said)


@shows("DUR-DESCRIBE", "effects", when=transacts)
async def declared_effects_work(bench: Bench) -> None:
    """Where it says that it transacts, an effect is applied and recorded; where it says that it undoes, a failed one is gone."""
    holder, said = await bench.claim(bench.workflow()), bench.description
    same(
        await answers(bench.checkpointer.transact(holder, "k", bench.effects.add("c", "done")), "transact"),
        "done",
        "what transact gives",
    )
    same(await bench.effects.applied("c"), 1, "how often the effect is applied")
    await raises(
        bench.checkpointer.transact(holder, "f", bench.effects.fail("f", first=False)),
        Exception,
        "transact of an effect that fails",
    )
    same(await bench.effects.applied("f"), 0 if said.undoes else 1, f"what a failed effect leaves, with undoes={said.undoes}")


@shows("DUR-DESCRIBE", when=never_transacts)
async def undeclared_effects_are_refused(bench: Bench) -> None:
    """Where it says that it does not transact, that is a Misconfigured."""
    holder = await bench.claim(bench.workflow())
    await raises(
        bench.checkpointer.transact(holder, "k", object()),
        Misconfigured,
        "transact on a store that says it has no effects",
    )


@shows("DUR-DESCRIBE")
async def catalog_and_joined_are_there_when_declared(bench: Bench) -> None:
    """`workflows` and `sweep` are there exactly when it says that it lists, and `joined` exactly when it says that it joins."""
    said, parts = bench.description, (bench.durable, bench.checkpointer, bench.scheduler)
    for name, declared in (("workflows", said.lists), ("sweep", said.lists), ("joined", said.joins)):
        there = any(hasattr(part, name) for part in parts)
        same(there, declared, f"whether {name} is there, with lists={said.lists} and joins={said.joins}")


@shows("DUR-DESCRIBE", "joined", when=joins)
async def a_declared_join_works(bench: Bench) -> None:
    """Where it says that it joins, what the client wrote in the application's transaction is there after the commit."""
    workflow = bench.workflow()
    async with bench.harness.application(bench.at) as application:
        await answers(application.client.arrive(workflow, "k", 1), "arrive in an application's transaction")
        await application.commit()
    same(await bench.checkpointer.load(workflow), {"k": 1}, "load after the application's commit")


@shows("DUR-DESCRIBE", when=lists)
async def a_declared_catalog_works(bench: Bench) -> None:
    """Where it says that it lists, a workflow with a record is listed."""
    workflow = bench.workflow()
    await bench.checkpointer.supply(workflow, "k", 1)
    listed = await answers(bench.catalog.workflows(prefix=workflow), "workflows")
    same([one.workflow for one in listed], [workflow], "what is listed")


@shows("DUR-DESCRIBE", when=splits)
async def a_pair_says_the_weaker_word(bench: Bench) -> None:
    """Of two stores the pair promises what both promise, polls as seldom as the slower, and names both."""
    one, other, pair = await bench.checkpointer.describe(), await bench.scheduler.describe(), bench.description
    for name in ("survives_kill", "survives_power_cut", "survives_failover"):
        weaker = min((getattr(one, name), getattr(other, name)), key=WORDS.index)
        same(getattr(pair, name), weaker, f"{name} of the pair, of {getattr(one, name)!r} and {getattr(other, name)!r}")
    for said in (one, other):
        holds(said.product in pair.product, f"the pair names {said.product!r}", pair.product)
        holds(pair.poll >= said.poll, f"the pair's poll interval is no shorter than {said.poll}", pair.poll)
    same((pair.co_commits, pair.joins), (False, False), "whether the pair co-commits and joins")
    if pair.co_commits:
        raise Broken("a pair of two stores does not co-commit", "it says so")
