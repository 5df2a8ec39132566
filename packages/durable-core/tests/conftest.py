"""What the tests of the engine share."""

from collections.abc import AsyncGenerator

import pytest

from probe import Probe, probing


@pytest.fixture
async def probe() -> AsyncGenerator[Probe]:
    """A checkpointer whose calls can be counted, held and broken; the test fails when it leaves tasks or complaints behind."""
    async with probing() as opened:
        yield opened
