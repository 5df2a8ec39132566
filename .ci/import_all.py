"""Imports every module of an installed package, and refuses one that comes from the source tree."""

import importlib
import pkgutil
import sys
from pathlib import Path


def import_all(name: str) -> int:
    """Imports the package and all below it; answers how many modules that were."""
    package = importlib.import_module(name)
    places = [Path(place).resolve() for place in package.__path__]
    if not all(place.is_relative_to(Path(sys.prefix).resolve()) for place in places):
        raise SystemExit(f"{name} is imported from {places}, not from {sys.prefix}")
    below = [found.name for found in pkgutil.walk_packages(package.__path__, f"{name}.")]
    for module in below:
        if not module.endswith(".__main__"):
            importlib.import_module(module)
    return 1 + len(below)


for wanted in sys.argv[1:]:
    print(f"{wanted}: {import_all(wanted)} modules")
