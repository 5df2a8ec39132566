"""The short examples run as they stand, and say what their readers are told."""

import subprocess
import sys

import pytest

SAID = {
    "approval": """\
the train is paid for
the dinner is not paid for
an answer after the deadline: counted False, what counts is False
""",
    "fork": """\
  researching tides: an hour's work
  writing in a dry tone
Finished(value='a dry text from notes on tides')
  writing in a cheerful tone
Finished(value='a cheerful text from notes on tides')
""",
    "graph": """\
  looking for a flight to Turin
  looking for a hotel in Turin
the first attempt failed: the hotels' site is down
  looking for a hotel in Turin
the second gives 550
""",
    "inbox": """\
  hello
  is anybody here?
  goodbye
3 messages were heard
""",
    "saga": """\
  booking a flight
  booking a hotel
  booking a car
  cancelling a hotel
  cancelling a flight
no trip: there is no car
""",
}


@pytest.mark.parametrize("name", sorted(SAID))
@pytest.mark.parametrize("how", ["examples/{}.py", "-mexamples.{}"])
def test_a_short_example_runs(store: str, name: str, how: str) -> None:
    """Both as a file and as a module."""
    ran = subprocess.run([sys.executable, how.format(name), store], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.stdout, ran.stderr, ran.returncode) == (SAID[name], "", 0)
