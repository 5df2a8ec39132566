"""What all tests of the repository share: the Python in the documents runs, and hypothesis keeps to one profile."""

import os

from hypothesis import settings
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

# In CI the same examples every time; `--hypothesis-profile=nightly` looks for new ones.
settings.register_profile("repository", deadline=None, print_blob=True, derandomize="CI" in os.environ)
settings.register_profile("nightly", deadline=None, print_blob=True, max_examples=1000)
settings.load_profile("repository")

pytest_collect_file = Sybil(parsers=[PythonCodeBlockParser(), SkipParser()], patterns=["*.md"]).pytest()
