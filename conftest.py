"""`pytest` runs what is soon done, the chapters with the solutions among it; `pytest --long` runs all.

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

# jsonschema, which nbformat imports, builds 38 grammars for a check of IRIs that no notebook asks for. That
# takes seconds in each process; without the module it leaves the check out.
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
