"""Limits of control groups, read from made-up files in the format of Linux."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from minipaged.config import EngineConfig
from minipaged.engine import machine
from minipaged.engine.control_group import GroupLimits, group_limits
from minipaged.engine.machine import usable_cpus, usable_memory
from minipaged.engine.memory_plan import CPU_MEMORY_SHARE, plan_memory
from minipaged.errors import ConfigError
from minipaged.kv.size import KVShape
from minipaged.loading.folder import read_config
from minipaged.loading.locations import TINY_FOLDER

GIB = 2**30
NO_LIMIT_V1 = 9223372036854771712
UNIFIED = "31 24 0:27 {top} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"
OLDER = "3{n} 24 0:2{n} {top} /sys/fs/cgroup/{controller} rw shared:9 - cgroup cgroup rw,{controller}"
NONE = GroupLimits()


def tree(root: Path, mounts: list[str], groups: list[str], files: Mapping[str, Mapping[str, object]]) -> Path:
    """A file system with control groups: `files` by folder and name."""
    proc = root / "proc/self"
    proc.mkdir(parents=True)
    other = "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw"
    (proc / "mountinfo").write_text("\n".join([other, *mounts]) + "\n")
    (proc / "cgroup").write_text("\n".join(groups) + "\n")
    for folder, contents in files.items():
        (root / "sys/fs/cgroup" / folder).mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            (root / "sys/fs/cgroup" / folder / name).write_text(f"{content}\n")
    return root


def older(controller: str, top: str = "/") -> str:
    return OLDER.format(n=len(controller), controller=controller, top=top)


def unified(root: Path, files: Mapping[str, Mapping[str, object]], group: str = "/", top: str = "/") -> Path:
    return tree(root, [UNIFIED.format(top=top)], [f"0::{group}"], files)


def test_a_container_that_sees_its_own_group_alone(tmp_path: Path) -> None:
    """Version 2 with a namespace, as containers have it now."""
    own = {"memory.max": 2 * GIB, "memory.high": "max", "memory.current": GIB, "cpu.max": "150000 100000"}
    assert group_limits(unified(tmp_path, {"": own})) == GroupLimits(2 * GIB, GIB, 1.5)


@pytest.mark.parametrize(
    ("group", "top"),
    [
        ("/docker/abc", "/docker/abc"),  # mounted from its own group on, and named from the machine's top
        ("/../docker/abc", "/docker/abc"),  # named from outside its namespace
        ("/user.slice/gone", "/"),  # it has been moved since
    ],
)
def test_a_group_whose_name_leads_nowhere(tmp_path: Path, group: str, top: str) -> None:
    files = {"": {"memory.max": GIB, "memory.current": 0}}
    assert group_limits(unified(tmp_path, files, group, top)) == GroupLimits(GIB, GIB, None)


def test_the_groups_above_count(tmp_path: Path) -> None:
    files = {
        "": {},  # the machine's own group has no such files
        "a.slice": {"memory.max": 4 * GIB, "memory.current": 3 * GIB, "cpu.max": "200000 100000"},
        "a.slice/b": {"memory.max": 2 * GIB, "memory.current": GIB // 2, "cpu.max": "max 100000"},
        "other": {"memory.max": 1, "memory.current": 1, "cpu.max": "1000 100000"},
    }
    # The group itself may use 1.5 GiB more, but the group above it has only 1 GiB left.
    assert group_limits(unified(tmp_path, files, "/a.slice/b")) == GroupLimits(2 * GIB, GIB, 2.0)


def test_cached_files_are_given_up_and_slowing_down_is_a_limit(tmp_path: Path) -> None:
    own = {
        "memory.max": 2 * GIB,
        "memory.high": GIB,
        "memory.current": 3 * GIB // 4,
        "memory.stat": f"anon 5\nactive_file {GIB // 8}\ninactive_file {GIB // 8}\nfile {GIB}",
    }
    assert group_limits(unified(tmp_path, {"": own})) == GroupLimits(GIB, GIB // 2, None)


def test_no_less_than_nothing_is_free(tmp_path: Path) -> None:
    own = {"memory.max": GIB, "memory.current": 2 * GIB}
    assert group_limits(unified(tmp_path, {"": own})).free_bytes == 0


@pytest.mark.parametrize("top", ["/docker/abc", "/"])
def test_version_1(tmp_path: Path, top: str) -> None:
    """A hierarchy begins with the container's group in a container, else with the root group."""
    below = "" if top != "/" else "/docker/abc"
    files = {
        f"memory{below}": {
            "memory.limit_in_bytes": 2 * GIB,
            "memory.usage_in_bytes": GIB,
            "memory.stat": f"total_inactive_file {GIB // 4}\ninactive_file {GIB}",
        },
        f"cpu,cpuacct{below}": {"cpu.cfs_quota_us": 250_000, "cpu.cfs_period_us": 100_000},
        "cpuset": {},
    }
    mounts = [older(each, top) for each in ("cpuset", "memory", "cpu,cpuacct")]
    groups = ["9:cpuset:/docker/abc", "4:memory:/docker/abc", "2:cpu,cpuacct:/docker/abc"]
    limits = group_limits(tree(tmp_path, mounts, groups, files))
    assert limits == GroupLimits(2 * GIB, GIB + GIB // 4, 2.5)


def test_version_1_names_the_limit_of_groups_that_cannot_be_seen(tmp_path: Path) -> None:
    files = {
        "memory": {
            "memory.limit_in_bytes": NO_LIMIT_V1,
            "memory.usage_in_bytes": GIB,
            "memory.stat": f"hierarchical_memory_limit {4 * GIB}",
        }
    }
    limits = group_limits(tree(tmp_path, [older("memory", "/pod")], ["4:memory:/pod"], files))
    assert limits == GroupLimits(4 * GIB, 3 * GIB, None)


def test_both_versions_at_once(tmp_path: Path) -> None:
    files = {
        "memory/m": {"memory.limit_in_bytes": GIB, "memory.usage_in_bytes": 0},
        "unified": {"cpu.max": "100000 100000"},
    }
    mounts = [older("memory"), UNIFIED.format(top="/").replace("/sys/fs/cgroup", "/sys/fs/cgroup/unified")]
    limits = group_limits(tree(tmp_path, mounts, ["4:memory:/m", "0::/"], files))
    assert limits == GroupLimits(GIB, GIB, 1.0)


@pytest.mark.parametrize(
    "own",
    [
        {},
        {"memory.max": "max", "memory.high": "max", "memory.current": GIB, "cpu.max": "max 100000"},
        {"memory.max": "", "cpu.max": ""},
        {"memory.max": "much", "memory.current": "more", "cpu.max": "100000"},
        {"cpu.max": "0 100000"},
        {"cpu.max": "100000 0"},
        {"memory.stat": "active_file\nx y z\nactive_file -3"},
    ],
)
def test_files_without_a_limit(tmp_path: Path, own: Mapping[str, object]) -> None:
    assert group_limits(unified(tmp_path, {"": own})) == NONE


@pytest.mark.parametrize("quota", [-1, 0])
def test_version_1_without_a_limit(tmp_path: Path, quota: int) -> None:
    files = {"cpu": {"cpu.cfs_quota_us": quota, "cpu.cfs_period_us": 100_000}, "memory": {}}
    mounts, groups = [older("cpu"), older("memory")], ["1:cpu:/", "4:memory:/"]
    assert group_limits(tree(tmp_path, mounts, groups, files)) == NONE


def test_systems_without_control_groups(tmp_path: Path) -> None:
    assert group_limits(tmp_path) == NONE
    assert (
        group_limits(tree(tmp_path / "a", ["nonsense", "", "1 2 - "], ["", "nonsense", "0::/"], {})) == NONE
    )
    (tmp_path / "b/proc/self").mkdir(parents=True)
    (tmp_path / "b/proc/self/mountinfo").write_bytes(b"\xff\xfe")
    assert group_limits(tmp_path / "b") == NONE


def test_this_system() -> None:
    limits = group_limits()
    assert limits.cpus is None or limits.cpus > 0
    assert limits.memory_bytes is None or limits.memory_bytes > 0


LEVELS = st.lists(
    st.tuples(st.integers(0, 100), st.integers(0, 100), st.integers(1, 100)), min_size=1, max_size=4
)


@given(levels=LEVELS)
def test_the_tightest_level_decides(
    tmp_path_factory: pytest.TempPathFactory, levels: list[tuple[int, int, int]]
) -> None:
    group = "/".join("abcd"[: len(levels)])
    files = {
        group[: 2 * depth + 1]: {"memory.max": most, "memory.current": used, "cpu.max": f"{cpu} 10"}
        for depth, (most, used, cpu) in enumerate(levels)
    }
    limits = group_limits(unified(tmp_path_factory.mktemp("tree"), files, f"/{group}"))
    assert limits.memory_bytes == min(most for most, _, _ in levels)
    assert limits.free_bytes == min(max(0, most - used) for most, used, _ in levels)
    assert limits.cpus == min(cpu for _, _, cpu in levels) / 10


# How an engine uses the limits.


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> GroupLimits:
    """A machine with 64 GiB and 16 CPUs, and a container on it."""
    limits = GroupLimits(memory_bytes=2 * GIB, free_bytes=GIB, cpus=1.5)
    of_machine = psutil.virtual_memory()._replace(total=64 * GIB, available=60 * GIB)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: of_machine)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(16)), raising=False)
    monkeypatch.setattr(machine, "group_limits", lambda: limits)
    return limits


@pytest.mark.usefixtures("limited")
def test_memory_and_cpus_are_the_containers() -> None:
    assert usable_memory() == machine.Memory(total=2 * GIB, free=GIB)
    assert usable_cpus() == 2


@pytest.mark.parametrize(
    ("changes", "free", "cpus"),
    [
        ({"memory_bytes": None, "free_bytes": None, "cpus": None}, 60 * GIB, 16),
        ({"memory_bytes": NO_LIMIT_V1, "free_bytes": NO_LIMIT_V1, "cpus": 100.0}, 60 * GIB, 16),
        ({"cpus": 0.1}, GIB, 1),
        ({"cpus": 16.0}, GIB, 16),
    ],
)
def test_a_limit_above_the_machine_is_none(
    monkeypatch: pytest.MonkeyPatch,
    limited: GroupLimits,
    changes: Mapping[str, float | None],
    free: int,
    cpus: int,
) -> None:
    monkeypatch.setattr(machine, "group_limits", lambda: replace(limited, **changes))
    assert (usable_memory().free, usable_cpus()) == (free, cpus)


@pytest.mark.usefixtures("limited")
@pytest.mark.parametrize("swaps", [False, True])
def test_the_plan_is_for_the_container(swaps: bool) -> None:
    model, cpu = read_config(TINY_FOLDER), torch.device("cpu")
    token = KVShape(model.num_layers, model.num_kv_heads, model.head_dim, 4).bytes_per_token
    options = EngineConfig(max_num_seqs=10**6, preemption_mode="swap" if swaps else "recompute")
    plan = plan_memory(options, model, torch.float32, cpu)
    assert plan.num_blocks == int(GIB * CPU_MEMORY_SHARE) // (16 * token)
    too_many = GIB // (16 * token) + 1
    with pytest.raises(ConfigError, match=f"but {GIB:,} are free"):
        plan_memory(EngineConfig(num_blocks=too_many), model, torch.float32, cpu)
