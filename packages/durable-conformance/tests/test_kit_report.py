"""What a report says, how it is graded, and what its exit code is."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from xml.etree import ElementTree

import pytest

from durable_conformance import gaps
from durable_conformance.case import cases
from durable_conformance.engine import Result, Verdict
from durable_conformance.gaps import Gaps
from durable_conformance.report import Power, Report, terminal, to_junit, to_markdown
from durable_conformance.written import from_json, to_json
from durable_core.contract import Description

SAID = Description("store", "1", "yes", "no", "no", True, True, True, True, True, True, timedelta(0))


def report(verdicts: dict[str, Verdict] | None = None, rest: Verdict = "held") -> Report:
    """Make a report in which each clause has a verdict."""
    chosen = verdicts or {}
    results = [Result(case, chosen.get(case.clause.id, rest), "seen", "promised", 0.0, "0") for case in cases()]
    return Report("store", SAID, results, "0", False, 1.0)


def test_a_store_that_holds_everything_is_graded_by_all_clauses() -> None:
    """As many held as there are."""
    whole = report()
    assert whole.held == len(whole.by_clause)
    assert whole.exit_code == 0


@pytest.mark.parametrize("verdict", ["broken", "error", "closed", "not covered", "gap", "not applicable"])
def test_nothing_but_holding_raises_the_grade(verdict: Verdict) -> None:
    """What was left out, or is a gap, or does not apply is not held."""
    assert report({"CKP-LOAD-EMPTY": verdict}).held == report().held - 1
    assert report(rest=verdict).held == 0


@pytest.mark.parametrize(
    ("verdict", "code"),
    [("held", 0), ("gap", 0), ("not applicable", 0), ("broken", 1), ("error", 1), ("closed", 1), ("not covered", 3)],
)
def test_the_exit_code_says_so(verdict: Verdict, code: int) -> None:
    """One clause decides; what is broken outweighs what is not covered."""
    assert report({"CKP-LOAD-EMPTY": verdict}).exit_code == code
    assert report({"CKP-LOAD-EMPTY": "broken", "CKP-LOAD-ORDER": "not covered"}).exit_code == 1


def test_a_run_in_which_nothing_ran_is_no_success() -> None:
    """Every test left out is exit code 3, and a grade of none."""
    nothing = report(rest="not covered")
    assert (nothing.exit_code, nothing.held) == (3, 0)


def test_a_clause_is_as_good_as_its_worst_case() -> None:
    """One case that is broken, or not covered, is what is told of the clause."""
    whole = report()
    results: Sequence[Result] = [
        replace(one, verdict="not covered") if one.case.name == cases()[0].name else one for one in whole.results
    ]
    assert replace(whole, results=results).by_clause[cases()[0].clause.id] == "not covered"


def test_a_gap_is_told_with_its_reason_and_what_was_seen() -> None:
    """It neither fails nor counts as held."""
    case = cases()[0]
    applied = Gaps({case.name: "not yet"}).applied(Result(case, "broken", "seen", "promised"))
    assert (applied.verdict, applied.promised, applied.seen) == ("gap", "not yet", "promised; seen: seen")


def test_a_gap_that_holds_fails_the_run() -> None:
    """By the test's name or the clause's."""
    case = cases()[0]
    for name in (case.name, case.clause.id):
        closed = Gaps({name: "not yet"}).applied(Result(case, "held"))
        assert closed.verdict == "closed"
        assert "remove it" in closed.seen


def test_a_gaps_file_with_an_unknown_name_or_no_reason_is_refused(tmp_path: Path) -> None:
    """A name that means nothing would hide nothing, and nobody would know."""
    path = tmp_path / "gaps.toml"
    path.write_text('[store]\n"CKP-NO-SUCH" = "reason"\n[other]\n"CKP-LOAD-EMPTY" = ""\n')
    with pytest.raises(ValueError, match="CKP-NO-SUCH"):
        gaps.read(path, "store")
    with pytest.raises(ValueError, match="gives no reason"):
        gaps.read(path, "other")
    assert gaps.read(path, "third").reasons == {}


def test_json_has_a_version_and_every_test() -> None:
    """And the mutants, when they were hunted."""
    told = json.loads(to_json([report({"CKP-LOAD-EMPTY": "broken"})], Power(3, 4, ["M01"])))
    assert told["format"] == 1
    assert told["stores"][0]["by_clause"]["CKP-LOAD-EMPTY"] == "broken"
    assert len(told["stores"][0]["results"]) == len(cases())
    assert told["mutants"] == {"killed": 3, "total": 4, "alive": ["M01"]}


def test_what_is_written_as_json_is_read_again() -> None:
    """The whole report, and the kit's power."""
    told = [report({"CKP-LOAD-EMPTY": "gap"}), replace(report(), store="other")]
    assert from_json(to_json(told, Power(3, 4, ["M01"]))) == (told, Power(3, 4, ["M01"]))


def test_a_json_report_of_another_kit_is_read_with_care() -> None:
    """A test that it lacks is not covered; one that the kit lacks, or another form, is refused."""
    lines = to_json([report()]).splitlines(keepends=True)
    (short,), _ = from_json("".join([*lines[:2], *lines[3:]]))
    assert [one.case for one in short.results if one.verdict == "not covered"] == [cases()[0]]
    with pytest.raises(ValueError, match="test_XYZ"):
        from_json("".join(lines).replace("test_CKP", "test_XYZ"))
    with pytest.raises(ValueError, match="format 0"):
        from_json("".join(lines).replace('"format": 1', '"format": 0'))


def test_junit_has_the_clauses_ids() -> None:
    """A failure is a failure, and what was left out is skipped and not passed."""
    root = ElementTree.fromstring(to_junit([report({"CKP-LOAD-EMPTY": "broken", "CKP-LOAD-ORDER": "not covered"})]))
    suite = root.find("testsuite")
    assert suite is not None
    broken = [one for one in suite.findall("testcase") if one.find("failure") is not None]
    assert {one.findtext("failure") is not None for one in broken} == {True}
    assert all("CKP-LOAD-EMPTY" in (one.findtext("failure") or "") for one in broken)
    properties = suite.findall("testcase/properties/property[@name='clause']")
    assert len(properties) == len(cases())
    assert suite.attrib["skipped"] == str(sum(case.clause.id == "CKP-LOAD-ORDER" for case in cases()))


def test_markdown_has_stores_across_and_clauses_down() -> None:
    """With reasons below, and nothing that changes from run to run."""
    whole, other = report(), replace(report({"CKP-LOAD-EMPTY": "gap"}), store="other", seconds=9.0)
    text = to_markdown([whole, other], Power(4, 4))
    assert "| clause | store | other |" in text
    assert "| CKP-LOAD-EMPTY | held | gap |" in text
    assert "the kit sees 4 of its 4 mutants." in text
    assert text == to_markdown([replace(whole, seconds=2.0), other], Power(4, 4))


def test_what_is_not_covered_is_told_by_its_reason() -> None:
    """The reason once, with the tests under it, and the one of most tests first: in the terminal and in Markdown."""
    whole = report()
    reasons = ["few", "many", "many"]
    some = [replace(one, verdict="not covered", seen=reason) for one, reason in zip(whole.results[:3], reasons, strict=True)]
    told = replace(whole, results=[*some, *whole.results[3:]])
    one, *others = [result.case.name for result in some]
    assert terminal(told).splitlines()[:6] == [
        "NOT COVERED, 2 tests: many",
        *(f"    {name}" for name in others),
        "",
        "NOT COVERED, 1 test: few",
        f"    {one}",
    ]
    assert f"- not covered, 1 test: few\n  - `{one}`\n" in to_markdown([told])


def test_the_terminal_tells_clause_promise_sight_and_where_to_read() -> None:
    """Of what is broken; what is held is a number."""
    text = terminal(report({"CKP-LOAD-EMPTY": "broken"}))
    for part in ("CKP-LOAD-EMPTY: Without records", "promised: promised", "seen: seen", "contract.md#ckp-load-empty", "seed: 0"):
        assert part in text
    assert "1 broken" in text.splitlines()[-1]
