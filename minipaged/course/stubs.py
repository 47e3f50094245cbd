"""Stubs: an exercise file is its solution without the marked bodies.

The markers are nbgrader's, with the exercise's number after the first one:

    def translate(position, block_size):
        \"\"\"…\"\"\"
        ### BEGIN SOLUTION 3.1
        return position // block_size, position % block_size
        ### END SOLUTION

A marked region inside a function becomes `raise NotYet("3.1", "translate")`. A region at the left margin is a
helper that only the solution needs, and disappears.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from dataclasses import dataclass

from minipaged.errors import CourseError

_BEGIN = re.compile(r"( *)### BEGIN SOLUTION(?: ([1-9]\.[1-9][0-9]?))?")
_END = re.compile(r" *### END SOLUTION")
_IMPORT = "from minipaged.course import NotYet"
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class SolvedRegion:
    """A marked region of a solution file.

    Attributes:
        exercise: its number; `None` for a helper at the left margin.
        name: the function or method around it, as `Class.method`; empty for a helper.
        begin, end: the lines of the two markers, counted from 0.
    """

    exercise: str | None
    name: str
    indent: str
    begin: int
    end: int


def regions(source: str) -> list[SolvedRegion]:
    """The marked regions of a solution file, in order.

    Raises:
        CourseError: markers do not pair, or a number is missing.
    """
    found: list[SolvedRegion] = []
    opened: tuple[int, re.Match[str]] | None = None
    for number, line in enumerate(source.splitlines()):
        begins = _BEGIN.fullmatch(line)
        if begins is not None:
            if opened is not None:
                raise CourseError(f"line {number + 1}: BEGIN SOLUTION inside another one")
            if begins[1] and not begins[2]:
                raise CourseError(f"line {number + 1}: write the exercise's number after BEGIN SOLUTION")
            opened = (number, begins)
        elif _END.fullmatch(line) is not None:
            if opened is None:
                raise CourseError(f"line {number + 1}: END SOLUTION without a beginning")
            begin, match = opened
            name = _name_around(source, begin + 1) if match[1] else ""
            found.append(SolvedRegion(match[2], name, match[1], begin, number))
            opened = None
        elif " SOLUTION" in line and line.lstrip().startswith("###"):
            raise CourseError(f"line {number + 1}: not a marker: {line.strip()}")
    if opened is not None:
        raise CourseError(f"line {opened[0] + 1}: BEGIN SOLUTION without an end")
    return found


def make_stub(source: str, keep: Collection[str] = ()) -> str:
    """Make the text of an exercise file from its solution file.

    Args:
        source: the solution file's text.
        keep: exercises that stay solved.
    """
    lines = source.splitlines()
    marked = regions(source)
    # Helpers are removed if no exercise stays solved. An exercise that stays solved may need them.
    removes_helpers = not any(region.exercise in keep for region in marked)
    takes_out = False
    for region in reversed(marked):
        if region.exercise is None:
            replacement = [] if removes_helpers else lines[region.begin + 1 : region.end]
        elif region.exercise in keep:
            replacement = lines[region.begin + 1 : region.end]
        else:
            takes_out = True
            replacement = [
                f"{region.indent}# Exercise {region.exercise}: your code here.",
                f'{region.indent}raise NotYet("{region.exercise}", "{region.name}")',
            ]
        lines[region.begin : region.end + 1] = replacement
    text = "\n".join(lines) + "\n"
    text = re.sub(r"\n{4,}", "\n\n\n", text)
    return _with_import(text) if takes_out else text


def without_markers(source: str) -> str:
    """The solution without its markers, as a reader sees it."""
    return make_stub(source, keep={region.exercise for region in regions(source) if region.exercise})


def unwritten(source: str, filename: str = "<source>") -> dict[str, list[str]]:
    """The exercises for which a file still raises `NotYet`, and the names of the functions that do.

    Args:
        source: the file's text.
        filename: the file's name for the error.

    Raises:
        SyntaxError: the file is not Python.
    """
    found: dict[str, list[str]] = {}
    for node in ast.walk(ast.parse(source, filename)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "NotYet":
            match node.args:
                case [ast.Constant(value=str(number)), ast.Constant(value=str(name))]:
                    found.setdefault(number, []).append(name)
    return found


def line_of(source: str, name: str) -> int:
    """The line, counted from 1, on which a function, class or method begins; 1 if there is none.

    Raises:
        SyntaxError: the file is not Python.
    """
    return next((node.lineno for path, node in _definitions(ast.parse(source)) if path == name), 1)


def has(source: str, name: str) -> bool:
    """Whether there is a function, class or method of that name.

    Raises:
        SyntaxError: the file is not Python.
    """
    return any(path == name for path, _ in _definitions(ast.parse(source)))


def text_of(source: str, name: str) -> str:
    """The source of a function, class or method.

    Raises:
        CourseError: there is none of that name.
        SyntaxError: the file is not Python.
    """
    for path, node in _definitions(ast.parse(source)):
        if path == name:
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            # Do not use `splitlines`, which also ends a line at a form feed.
            return "\n".join(source.split("\n")[first - 1 : node.end_lineno])
    raise CourseError(f"there is no {name} in this file")


def names_behind(source: str, names: Collection[str]) -> frozenset[str]:
    """These functions and classes, and all others of the file that they use, directly or indirectly.

    Raises:
        SyntaxError: the file is not Python.
    """
    defined = {node.name: node for node in ast.parse(source).body if isinstance(node, _Definition)}
    found: set[str] = set()
    to_visit = [name.partition(".")[0] for name in names]
    while to_visit:
        name = to_visit.pop()
        if name in defined and name not in found:
            found.add(name)
            to_visit += _used(defined[name])
    return frozenset(found)


def _used(definition: _Definition) -> set[str]:
    """The names that a function or class reads and does not bind itself, without names in annotations."""
    inside = [node for statement in definition.body for node in ast.walk(statement)]
    names = [node for node in inside if isinstance(node, ast.Name)]
    bound = {node.arg for node in ast.walk(definition) if isinstance(node, ast.arg)}
    bound |= {node.id for node in names if not isinstance(node.ctx, ast.Load)}
    return {node.id for node in names} - bound


def _definitions(tree: ast.Module) -> list[tuple[str, _Definition]]:
    found: list[tuple[str, _Definition]] = []

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, _Definition):
                found.append((prefix + child.name, child))
                visit(child, f"{prefix}{child.name}.")

    visit(tree, "")
    return found


def _name_around(source: str, line: int) -> str:
    around = [
        path
        for path, node in _definitions(ast.parse(source))
        if not isinstance(node, ast.ClassDef) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    if not around:
        raise CourseError(f"line {line}: BEGIN SOLUTION is not inside a function")
    return around[0]


def _with_import(text: str) -> str:
    """Add the import of NotYet where isort would put it."""
    lines = text.splitlines()
    imports = [node for node in ast.parse(text).body if isinstance(node, ast.Import | ast.ImportFrom)]
    ours = [n for n in imports if isinstance(n, ast.ImportFrom) and (n.module or "").startswith("minipaged")]
    later = [node for node in ours if (node.module or "") > "minipaged.course"]
    if later:
        lines.insert(later[0].lineno - 1, _IMPORT)
    elif ours:
        lines.insert(ours[-1].end_lineno or 0, _IMPORT)
    elif imports:
        lines[imports[-1].end_lineno or 0 : imports[-1].end_lineno or 0] = ["", _IMPORT]
    else:
        raise CourseError("an exercise file begins with `from __future__ import annotations`")
    return "\n".join(lines) + "\n"
