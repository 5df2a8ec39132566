"""What all tests of the repository share: the Python in the documents runs, and hypothesis keeps to one profile."""

import os
import shutil
import tempfile

from hypothesis import settings
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

# In CI the same examples every time; `--hypothesis-profile=nightly` looks for new ones.
settings.register_profile("repository", deadline=None, print_blob=True, derandomize="CI" in os.environ)
settings.register_profile("nightly", deadline=None, print_blob=True, max_examples=1000)
settings.load_profile("repository")


def _enter(namespace: dict[str, object]) -> None:
    """The Python of a document runs in a folder of its own, where it may leave files."""
    namespace["_left"], namespace["_entered"] = os.getcwd(), tempfile.mkdtemp()
    os.chdir(str(namespace["_entered"]))


def _leave(namespace: dict[str, object]) -> None:
    os.chdir(str(namespace["_left"]))
    shutil.rmtree(str(namespace["_entered"]))


pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(), SkipParser()], patterns=["*.md"], setup=_enter, teardown=_leave
).pytest()
