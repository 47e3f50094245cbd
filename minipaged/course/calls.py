"""Records the calls that a chapter's test makes to the checked code, each before it is made.

When a function raises, its test has not reached the line that says what was expected. With the recorded call
and the copies of its arguments, `raised.py` can still show the call and the right answer.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType


@dataclass
class Call:
    """One call from a test to the checked code.

    Attributes:
        function: the function that was called. It provides the names of the parameters.
        name: the function's name, or the method's as `Class.method`.
        args, kwargs: copies of the arguments, made before the call. An object of a class in the
            checked code is replaced by its `Made`. For a method, the first argument is the object itself.
        has_returned, result: whether the call returned, and what it returned.
    """

    function: Callable[..., object]
    name: str
    args: tuple[object, ...]
    kwargs: Mapping[str, object]
    has_returned: bool = False
    result: object = None


class Made:
    """Records how an object of a checked class got its state: its constructor's arguments and its calls."""

    def __init__(self, name: str, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        self.name, self.args, self.kwargs = name, args, kwargs
        self.calls: list[tuple[str, tuple[object, ...]]] = []

    def __repr__(self) -> str:
        arguments = [repr(each) for each in self.args] + [f"{k}={v!r}" for k, v in self.kwargs.items()]
        return f"{self.name}({', '.join(arguments)})"

    def snapshot(self) -> Made:
        """A copy that later calls do not change."""
        other = Made(self.name, self.args, self.kwargs)
        other.calls = list(self.calls)
        return other


class WatchedModule(ModuleType):
    """A module that records the calls of some of its functions and classes. All other names are unchanged.

    Only calls from the test are recorded, not those from inside the module. `forget` clears the record for
    the next test.

    Args:
        module: the module.
        names: the functions, classes and methods to record.
        before: called before each recorded call, with the function's name. If it raises an error, the call
            raises that error.
    """

    last_call: Call | None
    called: set[str]
    """The names of the functions and methods that were called."""

    def __init__(
        self, module: ModuleType, names: Collection[str], before: Callable[[str], None] | None = None
    ) -> None:
        super().__init__(module.__name__, module.__doc__)
        self.__dict__.update(module.__dict__)
        self._before = before
        self.last_call = None
        self.called = set()
        self._is_inside = False  # whether a recorded call is running
        self._made: dict[int, tuple[object, Made]] = {}  # holds the objects, so that ids stay unique
        for name in {name.partition(".")[0] for name in names}:
            value = module.__dict__.get(name)
            if isinstance(value, type):
                methods = {each.partition(".")[2] for each in names if each.startswith(f"{name}.")}
                self.__dict__[name] = self._watched_class(value, methods)
            elif callable(value):
                self.__dict__[name] = self._watched(value, name)

    def forget(self) -> None:
        """Clear the record of calls."""
        self.last_call, self._is_inside = None, False
        self.called = set()
        self._made.clear()

    def _watched(self, function: Callable[..., object], name: str) -> Callable[..., object]:
        @functools.wraps(function)
        def call(*args: object, **kwargs: object) -> object:
            if self._is_inside:
                return function(*args, **kwargs)
            with self._noted(Call(function, name, *self._copies(args, kwargs))) as noted:
                noted.result = function(*args, **kwargs)
            return noted.result

        return call

    @contextmanager
    def _noted(self, call: Call) -> Iterator[Call]:
        self.last_call, self._is_inside = call, True
        self.called.add(call.name)
        try:
            if self._before is not None:
                self._before(call.name)
            yield call
        finally:
            self._is_inside = False
        call.has_returned = True

    def _watched_class(self, original: type, methods: Collection[str]) -> type:
        def begin(this: object, *args: object, **kwargs: object) -> None:
            copies = self._copies(args, kwargs)
            self._made[id(this)] = (this, Made(name, *copies))
            if self._is_inside:
                original.__init__(this, *args, **kwargs)
                return
            with self._noted(Call(original, name, *copies)) as noted:
                original.__init__(this, *args, **kwargs)
                noted.result = this

        def logged(method: str) -> Callable[..., object]:
            function = getattr(original, method)

            def call(this: object, *args: object, **kwargs: object) -> object:
                result = function(this, *args, **kwargs)
                if id(this) in self._made:
                    self._made[id(this)][1].calls.append((method, args))
                return result

            return functools.wraps(function)(call)

        name = original.__name__
        others = [method for method in methods if method != "__init__"]
        attributes = {method: self._watched(logged(method), f"{name}.{method}") for method in others}
        return type(
            name,
            (original,),
            {
                "__module__": original.__module__,
                "__qualname__": name,
                "__doc__": original.__doc__,
                "__init__": functools.wraps(original.__init__)(begin),
                **attributes,
            },
        )

    def _copies(
        self, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> tuple[tuple[object, ...], Mapping[str, object]]:
        memo: dict[int, object] = {key: made.snapshot() for key, (_, made) in self._made.items()}
        try:
            return copy.deepcopy((args, dict(kwargs)), memo)
        except Exception:  # an object that cannot be copied is shown in its later state
            return args, kwargs


def answer(call: Call, module: ModuleType) -> tuple[object, tuple[object, ...], Mapping[str, object]]:
    """Make the same call to another module's code, with copies of the arguments.

    Returns:
        What the call returns, and the arguments after the call.

    Raises:
        Exception: anything that the other code raises.
    """
    made_by_us = _made_in([*call.args, *call.kwargs.values()])
    memo: dict[int, object] = {id(made): _rebuilt(made, module) for made in made_by_us}
    args, kwargs = copy.deepcopy((call.args, dict(call.kwargs)), memo)
    class_name, _, method = call.name.rpartition(".")
    if class_name:
        function, given = getattr(args[0], method), args[1:]
    else:
        function, given = getattr(module, method), args
    return function(*given, **kwargs), args, kwargs


def _made_in(value: object) -> list[Made]:
    if isinstance(value, Made):
        return [value]
    return [made for each in value for made in _made_in(each)] if isinstance(value, list | tuple) else []


def _rebuilt(made: Made, module: ModuleType) -> object:
    args, kwargs = copy.deepcopy((made.args, dict(made.kwargs)))
    this = getattr(module, made.name)(*args, **kwargs)
    for method, given in made.calls:
        getattr(this, method)(*given)
    return this
