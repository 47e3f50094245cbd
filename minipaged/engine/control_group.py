"""The limits that control groups set for a process's memory and CPUs.

A container is a process in control groups. It sees the whole machine in `/proc/meminfo` and in the number of
CPUs. But the kernel ends it if it takes more memory than its group may have. The limits are in files. Linux
has two versions of these files, and may use both at once. The limits of the groups above a process's own
group apply to the process as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True)
class GroupLimits:
    """The lowest limits of a process's own group and of the groups above it; `None` if there is no limit.

    Attributes:
        memory_bytes: the most memory that the process may use.
        free_bytes: how much of `memory_bytes` is free. Cached files count as free, since the kernel drops
            them when memory is needed.
        cpus: CPU seconds per second. 1.5 means one and a half CPUs.
    """

    memory_bytes: int | None = None
    free_bytes: int | None = None
    cpus: float | None = None


def group_limits(root: Path = Path("/")) -> GroupLimits:
    """The limits of this process. On a system without control groups, all are `None`.

    Args:
        root: the root of the file system.
    """
    unified = _folders(root, None)
    memory = [_memory_v2(each) for each in unified] + [_memory_v1(each) for each in _folders(root, "memory")]
    cpus = [_cpus_v2(each) for each in unified] + [_cpus_v1(each) for each in _folders(root, "cpu")]
    return GroupLimits(
        memory_bytes=_least(limit for limit, _ in memory),
        free_bytes=_least(free for _, free in memory),
        cpus=_least(cpus),
    )


def _folders(root: Path, controller: str | None) -> list[Path]:
    """The visible folders of a controller's groups: the process's own group first, then those above it.

    `controller=None` means version 2, which has one hierarchy for all controllers.
    """
    group = _own_group(root, controller)
    kind = "cgroup2" if controller is None else "cgroup"
    for mount in _lines(root / "proc/self/mountinfo"):
        place, _, origin = mount.partition(" - ")  # id parent device top point … - kind source options
        fields, kind_and_options = place.split(), origin.split()
        if group is None or len(fields) < 5 or len(kind_and_options) < 3 or kind_and_options[0] != kind:
            continue
        if controller is not None and controller not in kind_and_options[2].split(","):
            continue
        top, point = fields[3].rstrip("/"), root / fields[4].lstrip("/")
        # In a container only a part of the hierarchy is mounted, often just the process's own group.
        own = point / group.removeprefix(top).strip("/") if group.startswith(top + "/") else point
        if ".." in own.parts or not own.is_dir():
            own = point
        return [own, *(each for each in own.parents if each.is_relative_to(point))]
    return []


def _own_group(root: Path, controller: str | None) -> str | None:
    for line in _lines(root / "proc/self/cgroup"):
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if (controller or "") in controllers.split(","):
            return group
    return None


def _memory_v2(folder: Path) -> tuple[int | None, int | None]:
    # Above `high` the kernel slows the processes down until they hardly run.
    limit = _least(_number(folder / name) for name in ("memory.max", "memory.high"))
    return limit, _free(folder, limit, "memory.current", ("active_file", "inactive_file"))


def _memory_v1(folder: Path) -> tuple[int | None, int | None]:
    # This statistic is the lowest limit of the groups above, whose folders a container may not see.
    above = _statistics(folder).get("hierarchical_memory_limit")
    limit = _least((_number(folder / "memory.limit_in_bytes"), above))
    return limit, _free(folder, limit, "memory.usage_in_bytes", ("total_active_file", "total_inactive_file"))


def _free(folder: Path, limit: int | None, used: str, cached: tuple[str, ...]) -> int | None:
    num_used = _number(folder / used)
    if limit is None or num_used is None:
        return limit
    statistics = _statistics(folder)
    num_cached = sum(statistics.get(name, 0) for name in cached)
    return max(0, limit - max(0, num_used - num_cached))


def _cpus_v2(folder: Path) -> float | None:
    words = " ".join(_lines(folder / "cpu.max")).split()  # a quota, or "max", and the period
    return _share(*words) if len(words) == 2 else None


def _cpus_v1(folder: Path) -> float | None:
    files = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    return _share(*("".join(_lines(folder / name)) for name in files))


def _share(quota: str, period: str) -> float | None:
    """The quota as a number of CPUs. A quota of −1 means that there is no limit."""
    if not quota.isdecimal() or not period.isdecimal() or int(quota) == 0 or int(period) == 0:
        return None
    return int(quota) / int(period)


def _number(file: Path) -> int | None:
    """The number in a file; `None` if there is no such file, or if it says "max"."""
    text = "".join(_lines(file))
    return int(text) if text.isdecimal() else None


def _statistics(folder: Path) -> dict[str, int]:
    pairs = (line.split() for line in _lines(folder / "memory.stat"))
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []


def _least(values: Iterable[_Number | None]) -> _Number | None:
    return min((value for value in values if value is not None), default=None)
