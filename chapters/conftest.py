"""`pytest chapters/05` checks the reader's chapter 5; `--impl` chooses whose code is checked.

The hooks and fixtures are in `minipaged/course/pytest_plugin.py`.
"""

from minipaged.course.pytest_plugin import (
    code,
    pytest_addoption,
    pytest_cmdline_main,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_enter_pdb,
    pytest_make_collect_report,
    pytest_report_teststatus,
    pytest_runtest_call,
    pytest_runtest_makereport,
    pytest_runtest_setup,
    resolved,
)

__all__ = [
    "code",
    "pytest_addoption",
    "pytest_cmdline_main",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_enter_pdb",
    "pytest_make_collect_report",
    "pytest_report_teststatus",
    "pytest_runtest_call",
    "pytest_runtest_makereport",
    "pytest_runtest_setup",
    "resolved",
]
