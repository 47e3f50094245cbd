"""`minipaged doctor`: the report, and each fault that it can find."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import psutil
import pytest
import torch

from minipaged.cli import health
from minipaged.cli.health import Finding, Package, State
from minipaged.cli.main import main
from minipaged.engine import machine
from minipaged.engine.control_group import GroupLimits
from minipaged.loading.locations import TINY_FOLDER
from tests.torch_threads import torchs_own_threads

ROOT = Path(__file__).parents[2]


def test_a_sound_installation(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    output = capsys.readouterr().out
    for title in ("Versions", "Devices", "Triton", "Models", "Folders"):
        assert title in output
    assert re.search(rf"✓\s+torch\s+{re.escape(metadata.version('torch'))}", output)
    assert re.search(r"✓\s+tiny\s+comes with the package", output)
    assert "The engine can run here. device='auto' takes " in output


def test_a_broken_installation(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "PACKAGES", (Package("torch", "torch", (99, 0)),))
    monkeypatch.setattr(health, "triton", lambda: Finding("triton", "absent", "not tried"))
    assert main(["doctor"]) == 1
    output = capsys.readouterr().out
    version = metadata.version("torch")
    assert f"The engine cannot run here. torch: {version} is older than 99.0" in output


def test_the_oldest_versions_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == f">={health.PYTHON_MINIMUM[0]}.{health.PYTHON_MINIMUM[1]}"
    wanted = {re.split(r"[>=<; ]", line)[0]: line for line in project["dependencies"]}
    for package in health.PACKAGES:
        minimum = re.search(r">=(\d+)(?:\.(\d+))?", wanted[package.name])
        found = (int(minimum[1]), int(minimum[2] or 0)) if minimum else (0, 0)
        assert package.minimum == found, package.name


def test_an_old_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "PYTHON_MINIMUM", (99, 0))
    python = health.packages()[0]
    assert (python.subject, python.state) == ("python", "broken")
    assert "is older than 99.0" in python.detail


@pytest.mark.parametrize(("required", "state"), [(True, "broken"), (False, "absent")])
def test_faults_of_a_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, required: bool, state: State
) -> None:
    missing = health.package(Package("no-such-package", "nothing", required=required))
    assert missing == Finding("no-such-package", state, "not installed")

    old = health.package(Package("pytest", "pytest", (99, 1), required))
    assert (old.state, old.detail) == (state, f"{metadata.version('pytest')} is older than 99.1")

    (tmp_path / "broken_module.py").write_text("raise OSError('line one\\nlibfoo.so is missing')")
    monkeypatch.syspath_prepend(tmp_path)
    broken = health.package(Package("pytest", "broken_module", required=required))
    assert broken.state == state
    assert broken.detail.endswith("cannot be imported: libfoo.so is missing")


def test_devices_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    cuda, cpu, mps = health.devices()
    assert (cuda.subject, cuda.state) == ("cuda", "absent")
    assert (mps.subject, mps.state) == ("mps", "absent")
    assert cpu.state == "good"
    sizes = r"[\d.,]+ \wiB of [\d.,]+ \wiB free"
    assert re.match(rf"\d+ cores, up to \d+ threads?, {sizes}", cpu.detail)


def test_on_a_mac_auto_takes_the_cpu(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(health, "triton", lambda: Finding("triton", "absent", "not tried"))
    assert main(["doctor"]) == 0
    output = capsys.readouterr().out
    assert "Apple GPU, experimental" in output
    assert "The engine can run here. device='auto' takes cpu." in output


def test_what_a_container_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = psutil.virtual_memory()._replace(total=64 * 2**30, available=60 * 2**30)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    monkeypatch.setattr("os.cpu_count", lambda: 16)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(16)), raising=False)
    limits = GroupLimits(2 * 2**30, 2**30, 1.5)
    monkeypatch.setattr(machine, "group_limits", lambda: limits)
    with torchs_own_threads(16):
        *_, cpu, _ = health.devices()
    assert cpu.detail == (
        "2 cores, up to 2 threads, 1 GiB of 2 GiB free; the machine has 16 cores and 64 GiB, of which this "
        "process may use no more"
    )
    monkeypatch.setattr(machine, "group_limits", GroupLimits)
    with torchs_own_threads(16):
        *_, cpu, _ = health.devices()
    assert cpu.detail == "16 cores, up to 16 threads, 60 GiB of 64 GiB free"


def test_devices_with_two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: (2**30, 2**34))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: f"Card {index}")
    found = health.devices()
    assert found[0] == Finding("cuda", "good", "Card 0 (sm_90), 1 GiB of 16 GiB free")
    assert found[1] == Finding("cuda:1", "good", "Card 1 (sm_90), 1 GiB of 16 GiB free")


@pytest.mark.long
def test_triton_runs_a_kernel_under_its_interpreter() -> None:
    pytest.importorskip("triton")
    probe = Path(health.__file__).with_name("triton_probe.py")
    environ = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-P", str(probe), "cpu"], env=environ, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("code", "state", "detail"),
    [
        ("pass", "good", "a test kernel ran (no GPU: under its interpreter, for tests)"),
        (
            "raise RuntimeError('no compiler')",
            "absent",
            "a test kernel failed (no GPU: under its interpreter, for tests): RuntimeError: no compiler",
        ),
        (
            "raise SystemExit(1)",
            "absent",
            "a test kernel failed (no GPU: under its interpreter, for tests): wrong result, or exit code 1",
        ),
        (
            "import os; raise SystemExit(0 if os.environ['TRITON_INTERPRET'] == '1' else 5)",
            "good",
            "a test kernel ran (no GPU: under its interpreter, for tests)",
        ),
    ],
)
def test_what_is_said_of_triton(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str, state: State, detail: str
) -> None:
    (tmp_path / "triton_probe.py").write_text(code)
    monkeypatch.setattr(health, "__file__", str(tmp_path / "health.py"))
    monkeypatch.setattr(health, "package", lambda wanted: Finding("triton", "good", "3"))
    monkeypatch.setattr(health, "devices", lambda: [Finding("cpu", "good", "")])
    assert health.triton() == Finding("triton", state, detail)


def test_no_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "package", lambda wanted: Finding("triton", "absent", "not installed"))
    monkeypatch.setattr(sys, "platform", "darwin")
    found = health.triton()
    assert found.state == "absent"
    assert "not installed (there is no release for darwin)" in found.detail


def test_models_and_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MINIPAGED_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    assert health.folders() == [
        Finding("minipaged's cache", "absent", f"{tmp_path / 'cache'}, not there yet"),
        Finding("the hub's cache", "absent", f"{tmp_path / 'hub'}, not there yet"),
    ]
    (tmp_path / "cache").mkdir()
    assert health.folders()[0] == Finding("minipaged's cache", "good", str(tmp_path / "cache"))
    tiny = health.models()[0]
    assert tiny == Finding("tiny", "good", f"comes with the package: {TINY_FOLDER}")


def test_checks_report_what_they_cannot_find_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "minipaged.loading.locations", None)
    monkeypatch.setitem(sys.modules, "minipaged.loading.smollm2_wheel", None)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert health.models()[0].detail.startswith("cannot be looked for: ")
    assert health.folders()[0].detail.startswith("not known: ")
    assert health.devices()[0].detail.startswith("torch cannot be imported: ")
