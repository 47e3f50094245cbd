"""Converts an event to a JSON object, and back.

An object has the event's name as `"event"`, and its fields under their own names. Only `TokenSampled`
differs, because each step has one for every sequence. Consecutive `TokenSampled` events become one object
`TokensSampled` with the lists `seq_ids`, `token_ids` and `texts`.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal, get_args, get_origin, get_type_hints

from minipaged.errors import TraceError
from minipaged.events import Event, TokenSampled

TOKENS = "TokensSampled"
_COLUMNS = ("seq_ids", "token_ids", "texts")

_CLASSES: dict[str, Callable[..., Event]] = {each.__name__: each for each in get_args(Event)}
_HINTS = {name: get_type_hints(each) for name, each in _CLASSES.items()}
_FIELDS = {name: tuple(hints) for name, hints in _HINTS.items()}


def encode(events: Iterable[Event], *, texts: bool = True) -> list[dict[str, object]]:
    """The events as objects that `json.dumps` takes.

    Args:
        events: the events, in their order.
        texts: whether to keep the texts of tokens.
    """
    objects: list[dict[str, object]] = []
    run: tuple[list[int], list[int], list[str]] | None = None
    for event in events:
        if isinstance(event, TokenSampled):
            if run is None:
                run = ([], [], [])
                objects.append({"event": TOKENS, **dict(zip(_COLUMNS, run, strict=True))})
            run[0].append(event.seq_id)
            run[1].append(event.token_id)
            run[2].append(event.text if texts else "")
            continue
        run = None
        name = type(event).__name__
        encoded: dict[str, object] = {"event": name}
        for field in _FIELDS[name]:
            encoded[field] = getattr(event, field)
        if not texts and "prompt_texts" in encoded:
            encoded["prompt_texts"] = ()
        objects.append(encoded)
    if not texts:
        for each in objects:
            if each["event"] == TOKENS:
                del each["texts"]
    return objects


def decode(objects: object) -> list[Event]:
    """The events of a line of a trace file.

    Raises:
        TraceError: the line is not a list of events, an event has an unknown name, or an event has a missing
            field, an extra field, or a value of the wrong type.
    """
    if not isinstance(objects, list):
        raise TraceError(f"a line's events must be a list, not {objects!r:.80}")
    return [event for each in objects for event in _decode(each)]


def _decode(encoded: object) -> Iterator[Event]:
    if not isinstance(encoded, Mapping):
        raise TraceError(f"an event must be an object, not {encoded!r:.80}")
    values = dict(encoded)
    name = values.pop("event", None)
    if name == TOKENS:
        columns = [values.pop(column, None) for column in _COLUMNS]
        if columns[2] is None and isinstance(columns[0], list):
            columns[2] = [""] * len(columns[0])
        if values or not all(isinstance(column, list) for column in columns):
            raise TraceError(f"{TOKENS} has the lists {', '.join(_COLUMNS)}, not {encoded!r:.80}")
        if len({len(column) for column in columns}) > 1:
            raise TraceError(f"the lists of {TOKENS} differ in length: {encoded!r:.80}")
        for row in zip(*columns, strict=True):
            yield _make("TokenSampled", dict(zip(_FIELDS["TokenSampled"], row, strict=True)))
    else:
        yield _make(name, values)


def _make(name: object, values: dict[str, object]) -> Event:
    if not isinstance(name, str) or name not in _CLASSES:
        raise TraceError(f"there is no event {name!r:.80}")
    hints = _HINTS[name]
    if values.keys() != hints.keys():
        raise TraceError(f"{name} has the fields {', '.join(hints)}; not {', '.join(map(str, values))}")
    for field, value in values.items():
        values[field] = _typed(name, field, value, hints[field])
    return _CLASSES[name](**values)


def _typed(name: str, field: str, value: object, hint: object) -> object:
    """The value, checked against the type `hint`, with its lists converted to tuples."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is types.UnionType:
        if value is None:
            return None
        return _typed(name, field, value, next(arg for arg in args if arg is not types.NoneType))
    if origin is tuple:
        if isinstance(value, list):
            inner = args[:1] * len(value) if args[-1] is Ellipsis else args
            if len(inner) == len(value):
                return tuple(_typed(name, field, each, arg) for each, arg in zip(value, inner, strict=True))
    elif origin is Literal:
        if value in args:
            return value
    elif hint is float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    elif isinstance(hint, type) and isinstance(value, hint) and isinstance(value, bool) == (hint is bool):
        return value
    raise TraceError(f"{field} of {name} cannot be {value!r:.80}")
