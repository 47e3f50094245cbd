"""`pytest` runs the short tests, and the chapters' tests with the solutions; `pytest --long` runs all."""

import sys

pytest_plugins = ["tests.long_tests"]

# nbformat imports jsonschema, which builds 38 grammars to check IRIs. That takes seconds in each process, and
# no notebook has IRIs. Without this module, jsonschema leaves the check out.
sys.modules.setdefault("rfc3987_syntax", None)  # pyright: ignore[reportArgumentType]
