"""`pytest` runs the short tests, and the chapters' tests with the solutions; `pytest --long` runs all.

The hooks are in `tests/long_tests.py`.
"""

import sys

from tests.long_tests import (
    pytest_addoption,
    pytest_cmdline_main,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_sessionfinish,
    pytest_terminal_summary,
    pytest_testnodedown,
)

# nbformat imports jsonschema, which builds 38 grammars to check IRIs. That takes seconds in each process, and
# no notebook has IRIs. Without this module, jsonschema leaves the check out.
sys.modules.setdefault("rfc3987_syntax", None)  # pyright: ignore[reportArgumentType]

__all__ = [
    "pytest_addoption",
    "pytest_cmdline_main",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_sessionfinish",
    "pytest_terminal_summary",
    "pytest_testnodedown",
]
