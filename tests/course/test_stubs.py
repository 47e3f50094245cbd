"""Exercise files that are made from solution files."""

from __future__ import annotations

import pytest

from minipaged.course import stubs
from minipaged.errors import CourseError

SOLUTION = '''"""A chapter."""

from __future__ import annotations

import math

from minipaged.kv.size import KVShape

### BEGIN SOLUTION
def _helper(x: int) -> int:
    return x
### END SOLUTION


def first(x: int) -> int:
    """The first."""
    ### BEGIN SOLUTION 9.1
    return _helper(x) + 1
    ### END SOLUTION


class Second:
    """Not marked: stays."""

    def grow(self) -> int:
        """Grows."""
        if self is None:
            return 0
        ### BEGIN SOLUTION 9.2
        return 2
        ### END SOLUTION
'''


def test_regions_know_their_function() -> None:
    found = [(region.exercise, region.name) for region in stubs.regions(SOLUTION)]
    assert found == [(None, ""), ("9.1", "first"), ("9.2", "Second.grow")]


def test_a_stub_raises_where_the_solution_was() -> None:
    stub = stubs.make_stub(SOLUTION)
    assert stubs.unwritten(stub) == {"9.1": ["first"], "9.2": ["Second.grow"]}
    assert "_helper" not in stub
    assert "SOLUTION" not in stub
    assert '"""The first."""\n    # Exercise 9.1: your code here.\n    raise NotYet("9.1", "first")\n' in stub
    assert "if self is None:\n            return 0\n" in stub
    imports = "from minipaged.course import NotYet\nfrom minipaged.kv.size import KVShape\n"
    assert imports in stub


def test_what_is_kept_stays_solved() -> None:
    stub = stubs.make_stub(SOLUTION, keep={"9.1"})
    assert stubs.unwritten(stub) == {"9.2": ["Second.grow"]}
    assert "def _helper" in stub
    assert "return _helper(x) + 1" in stub


def test_a_reader_s_solution_has_no_markers() -> None:
    shown = stubs.without_markers(SOLUTION)
    assert "SOLUTION" not in shown
    assert "NotYet" not in shown
    assert stubs.text_of(shown, "Second.grow").strip().endswith("return 2")
    assert stubs.line_of(shown, "Second") > stubs.line_of(shown, "first")


@pytest.mark.parametrize(
    ("imports", "expected"),
    [
        ("import math", "import math\n\nfrom minipaged.course import NotYet\n"),
        (
            "from minipaged.attention import x",
            "from minipaged.attention import x\nfrom minipaged.course import NotYet\n",
        ),
    ],
)
def test_the_import_goes_where_isort_puts_it(imports: str, expected: str) -> None:
    source = f"{imports}\n\n\ndef f() -> None:\n    ### BEGIN SOLUTION 9.1\n    pass\n    ### END SOLUTION\n"
    assert stubs.make_stub(source).startswith(expected)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("def f():\n    ### BEGIN SOLUTION 9.1\n    pass\n", "without an end"),
        ("def f():\n    pass\n    ### END SOLUTION\n", "without a beginning"),
        ("def f():\n    ### BEGIN SOLUTION\n    pass\n    ### END SOLUTION\n", "the exercise's number"),
        ("def f():\n    pass\n    ### BEGIN  SOLUTION 9.1\n", "not a marker"),
        ("if True:\n    ### BEGIN SOLUTION 9.1\n    pass\n    ### END SOLUTION\n", "not inside a function"),
        (
            "def f():\n    ### BEGIN SOLUTION 9.1\n    pass\n    ### BEGIN SOLUTION 9.1\n",
            "inside another",
        ),
    ],
)
def test_bad_markers_are_refused(lines: str, message: str) -> None:
    with pytest.raises(CourseError, match=message):
        stubs.regions(lines)
