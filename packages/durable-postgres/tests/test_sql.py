"""Every statement names its workflow, but for a list of few: that is what lets the tables be partitioned by it."""

import re

from durable_postgres import sql
from durable_postgres.schema import made, migrations

TABLES = re.compile(r"workflow_(checkpoint|claim|queue)\b(?! %ROWTYPE)")
NAMED = re.compile(r"\bworkflow = |\(workflow, |ON CONFLICT")
SCANNING = {"workflow_next_ready_v1", "workflow_begin_v1", "workflow_sweep_v1"}  # functions that look for work


def statements() -> dict[str, str]:
    """The constants of `sql`."""
    return {name: value for name, value in vars(sql).items() if name.isupper() and isinstance(value, str)}


def functions() -> dict[str, str]:
    """The functions of the migrations, by name."""
    text = "".join(body for _, _, body in migrations())
    return dict(re.findall(r"CREATE FUNCTION @schema@\.(\w+)(.*?)END \$durable\$;", text, re.DOTALL))


def parts(body: str) -> list[str]:
    """The statements of a function that touch a table."""
    return [
        part
        for part in re.split(r";|\bLOOP\b|\bTHEN\n|\bDECLARE\b", body.split("AS $durable$", 1)[1])
        if re.search(r"(FROM|INTO|UPDATE) @schema@\.workflow_\w+(?<!_v1)\b", part)
    ]


def test_every_statement_names_its_workflow_or_is_listed() -> None:
    """What is not in `SCANS` has the workflow among its conditions or arguments."""
    for name, text in statements().items():
        if name in sql.SCANS:
            continue
        called = re.findall(r"\{schema\}(workflow_\w+_v\d+)\(", text)
        if called:
            assert len(called) == 1
            assert called[0] not in SCANNING, name
        elif TABLES.search(text):
            assert re.search(r"workflow = (%s|%\(workflow\)s|w\.workflow)", text), name


def test_the_list_of_scans_holds_nothing_else() -> None:
    """Every name in `SCANS` is a statement, and those that call a function call one that looks for work."""
    texts = statements()
    assert texts.keys() >= sql.SCANS
    for name in sql.SCANS:
        for called in re.findall(r"\{schema\}(workflow_\w+_v\d+)\(", texts[name]):
            assert called in SCANNING, name


def test_every_statement_of_a_function_names_its_workflow() -> None:
    """Inside the functions as well; those that look for work have two such statements, or one, beside."""
    found = functions()
    assert found.keys() == set(made("function"))
    for name, body in found.items():
        scans = [part for part in parts(body) if not re.search(r"workflow = |\(workflow, |g\.id = |workflow_guard", part)]
        assert len(scans) == (2 if name in SCANNING - {"workflow_sweep_v1"} else 1 if name in SCANNING else 0), (name, scans)


def test_every_function_that_writes_asks_for_the_isolation() -> None:
    """A function whose snapshot could be older than its locks refuses, itself or in the first one that it calls."""
    relying = {
        "workflow_check_v1",
        "workflow_look_v1",
        "workflow_arrive_v1",
        "workflow_deliver_v1",
        "workflow_end_v1",
        "workflow_keep_turn_v1",
    }
    for name, body in functions().items():
        assert name in relying or "workflow_check_v1()" in body, name
