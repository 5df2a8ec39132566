"""The report that is kept is current: each test of a store compares its own line, and these compare the rest."""

from conformance.report import GAPS, PAGE, STORES, TOLD, page
from durable_conformance import gaps
from durable_conformance.mutants.registry import mutants
from durable_conformance.written import from_json


def test_the_page_is_what_the_report_tells() -> None:
    """One file is written from the other."""
    assert PAGE.read_text() == page(*from_json(TOLD.read_text()))


def test_the_report_tells_of_every_store_and_every_test() -> None:
    """Nothing is left out, and nothing is broken."""
    reports, _ = from_json(TOLD.read_text())
    assert [report.store for report in reports] == list(STORES)
    assert {report.store: report.exit_code for report in reports} == dict.fromkeys(STORES, 0)


def test_the_report_gives_the_reasons_of_the_gaps_file() -> None:
    """As they are written there now."""
    for report in from_json(TOLD.read_text())[0]:
        declared = gaps.read(GAPS, report.store)
        for result in report.results:
            assert (result.promised if result.verdict == "gap" else None) == declared.of(result), result.case.name


def test_the_kit_sees_all_of_its_mutants() -> None:
    """Each is hunted by a test of the kit's own; here the number that is told is compared."""
    _, power = from_json(TOLD.read_text())
    assert power is not None
    assert (power.killed, power.total) == (len(mutants()), len(mutants()))
