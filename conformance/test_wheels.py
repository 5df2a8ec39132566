"""The built wheels in a new environment, and the how-to beside them, as users have them. `.ci/wheels` runs this."""

import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HOW_TO = ROOT / "docs" / "how-to" / "hold-a-store-to-the-contract.md"
EXAMPLE = ROOT / "docs" / "how-to" / "example_store"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(420)]


def ran(*command: str | Path, within: Path, seconds: float = 400) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, as somebody would who has nothing of this tree."""
    return subprocess.run(
        [str(part) for part in command],
        cwd=within,
        env={"PATH": "/usr/bin:/bin", "HOME": str(within), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=seconds,
    )


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the Python of an environment into which pip put the wheels of core and the kit."""
    room = tmp_path_factory.mktemp("wheels")
    for name in ("durable-core", "durable-conformance"):
        subprocess.run(["uv", "build", "--quiet", "--wheel", "--package", name, "--out-dir", room / "dist"], cwd=ROOT, check=True)
    subprocess.run([sys.executable, "-m", "venv", room / "env"], check=True)
    made = room / "env" / "bin" / "python"
    subprocess.run([made, "-m", "pip", "install", "--quiet", *(room / "dist").glob("*.whl")], check=True)
    return made


def counts(text: str) -> Counter[str]:
    """Give how many tests came to what, by pytest's last line, or by a line of the page."""
    line = re.findall(r"^=*\s*(\d+ \w+(?:, \d+ \w+)*) in ", text, re.MULTILINE)[-1]
    return Counter({word: int(count) for count, word in re.findall(r"(\d+) (\w+)", line)})


def blocks(language: str) -> list[str]:
    """Give the blocks of the page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", HOW_TO.read_text(), re.MULTILINE | re.DOTALL)


def test_the_first_list_is_as_the_page_shows_it(python: Path, tmp_path: Path) -> None:
    """From an empty folder: its files, and the counts that it names, but for a few that a busy machine moves."""
    store, tests, *_ = blocks("python")
    (tmp_path / "my_store.py").write_text(store)
    (tmp_path / "test_my_store.py").write_text(tests)
    done = ran(python, "-m", "pytest", "-q", within=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    shown, seen = counts("".join(blocks("text"))), counts(done.stdout)
    assert shown.keys() == seen.keys(), done.stdout
    assert all(abs(shown[word] - seen[word]) <= 3 for word in shown), (shown, seen)
    failure = next(block for block in blocks("text") if block.startswith("CKP-"))
    assert failure in done.stdout


def test_the_example_is_all_green(python: Path, tmp_path: Path) -> None:
    """Copied beside the wheels, as users copy it; it declares its gaps."""
    shutil.copytree(EXAMPLE, tmp_path / "mine", ignore=shutil.ignore_patterns("__pycache__"))
    done = ran(python, "-m", "pytest", "-q", within=tmp_path / "mine")
    assert done.returncode == 0, done.stdout + done.stderr
    assert counts(done.stdout)["passed"] > 200


def test_the_other_doors_say_the_same(python: Path, tmp_path: Path) -> None:
    """The command line, with its reports, and the function."""
    shutil.copytree(EXAMPLE, tmp_path / "mine", ignore=shutil.ignore_patterns("__pycache__"))
    options = [
        "--gaps",
        "gaps.toml",
        "--only",
        "CKP-LOAD",
        "--json",
        "report.json",
        "--junit",
        "report.xml",
        "--markdown",
        "REPORT.md",
    ]
    done = ran(python, "-m", "durable_conformance", "test_folder_store.py:FolderHarness", *options, within=tmp_path / "mine")
    assert done.returncode == 0, done.stdout + done.stderr
    assert {"report.json", "report.xml", "REPORT.md"} <= {one.name for one in (tmp_path / "mine").iterdir()}
    asked = "from durable_conformance import check; from test_folder_store import FolderHarness as H; "
    done = ran(python, "-c", asked + "print(check(H, only='CKP-LOAD-EMPTY').exit_code)", within=tmp_path / "mine")
    assert done.stdout.split() == ["0"], done.stderr
