"""The fixtures: a missing server is a failure that says what to install, and a skip only where that was asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from durable_conformance import servers
from durable_conformance.servers import fixtures


@pytest.fixture(autouse=True)
def no_valkey(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DURABLE_TEST_VALKEY_BIN", str(tmp_path / "nothing"))


def test_a_missing_server_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test whose server is missing fails, and says what to install."""
    monkeypatch.setenv("DURABLE_TEST_ALLOW_MISSING", "redis")

    with pytest.raises(pytest.fail.Exception, match="no valkey to test with"):
        with fixtures.or_say_so(servers.redis("valkey")):
            pass


def test_a_missing_server_is_a_skip_where_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is skipped where DURABLE_TEST_ALLOW_MISSING names its kind."""
    monkeypatch.setenv("DURABLE_TEST_ALLOW_MISSING", "redis,valkey")

    with pytest.raises(pytest.skip.Exception, match="DURABLE_TEST_ALLOW_MISSING names valkey"):
        with fixtures.or_say_so(servers.redis("valkey")):
            pass
