"""Read an exercise file as editors save it: with a byte-order mark, a coding line, or any line ends."""

from __future__ import annotations

import codecs
import io
import tokenize
from pathlib import Path

_MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),  # begins like the mark of UTF-16, so it comes first
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)
_MEND = "save the file as UTF-8"


def read_source(path: Path) -> str:
    """The text that Python would read, with plain line ends.

    Raises:
        SyntaxError: Python could not read the file. The error has the file, and the line if there is one.
        OSError: there is no such file.
    """
    content = path.read_bytes()
    for mark, name in _MARKS:
        if content.startswith(mark):
            raise _unreadable(path, f"the file is in {name}: save it as UTF-8")
    if b"\0" in content:
        raise _unreadable(path, "the file has null bytes, as UTF-16 has: save it as UTF-8")
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
    except SyntaxError as error:
        encoding = "utf-8"  # if the text is not UTF-8, decoding fails below; else the coding line is at fault
        coding_line = str(error)
    else:
        coding_line = ""
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _unreadable(path, f"line {line} is not {_shown(encoding)}: {_MEND}", line) from None
    if coding_line:
        raise _unreadable(path, f"{coding_line}: {_MEND}, without a coding line", 1)
    return io.StringIO(text, newline=None).read()


def _shown(encoding: str) -> str:
    return "UTF-8" if encoding in ("utf-8", "utf-8-sig") else f"{encoding}, as its coding line says"


def _unreadable(path: Path, message: str, line: int | None = None) -> SyntaxError:
    return SyntaxError(message, (str(path), line, None, None))
