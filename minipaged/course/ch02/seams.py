"""Chapter 2 in the engine: it runs with `kv_layout="contiguous"`, and each function is a part."""

from __future__ import annotations

from minipaged.course.seams import Seam

SEAMS = (
    Seam("2.1", "allocate_first_fit", lambda code: code.allocate_first_fit),
    Seam("2.1", "free_first_fit", lambda code: code.free_first_fit),
    Seam("2.2", "write_region", lambda code: code.write_region),
    Seam("2.2", "read_region", lambda code: code.read_region),
    Seam("2.3", "attend_region", lambda code: code.attend_region),
    Seam("2.5", "allocate_buddy", lambda code: code.allocate_buddy),
    Seam("2.5", "free_buddy", lambda code: code.free_buddy),
)
