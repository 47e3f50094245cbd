"""The command's frame: finding subcommands, exit codes, one line for each error."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from types import ModuleType

import pytest

from minipaged import __version__
from minipaged.cli import main as cli
from minipaged.errors import ConfigError

PYTHON_M = [sys.executable, "-m", "minipaged"]


def exit_code(*arguments: str) -> int:
    """The exit code of the command. argparse exits by raising SystemExit."""
    try:
        return cli.main(arguments)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], int]], None]:
    """Makes `minipaged fake` run a function of the test."""

    def install(action: Callable[[], int]) -> None:
        def add_arguments(parser: argparse.ArgumentParser) -> None:
            parser.add_argument("--count", type=int)

        def run(args: argparse.Namespace) -> int:
            return action()

        module = ModuleType("fake_command")
        module.__dict__.update(add_arguments=add_arguments, run=run)
        monkeypatch.setitem(sys.modules, "fake_command", module)
        absent = cli.Command("absent", "no_such_module", "is never imported", "minipaged absent")
        fake = cli.Command("fake", "fake_command", "does what the test says", "minipaged fake --count 3")
        monkeypatch.setattr(cli, "COMMANDS", (absent, fake))

    return install


def test_the_commands_exit_code_is_the_process_s(install: Callable[[Callable[[], int]], None]) -> None:
    install(lambda: 7)
    assert exit_code("fake") == 7
    assert exit_code("fake", "--count", "3") == 7


def test_our_errors_are_one_line_and_exit_code_2(
    install: Callable[[Callable[[], int]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> int:
        raise ConfigError("first line\n  second [line]")

    install(fail)
    assert exit_code("fake") == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "minipaged: first line second [line]\n"


@pytest.mark.parametrize("no_color", [False, True])
def test_errors_are_red_in_a_terminal(
    install: Callable[[Callable[[], int]], None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    no_color: bool,
) -> None:
    def fail() -> int:
        raise ConfigError("wrong")

    install(fail)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    assert exit_code("fake") == 2
    assert ("\x1b[31m" in capsys.readouterr().err) is not no_color


def test_other_errors_keep_their_traceback(install: Callable[[Callable[[], int]], None]) -> None:
    def fail() -> int:
        raise RuntimeError("a bug")

    install(fail)
    with pytest.raises(RuntimeError, match="a bug"):
        exit_code("fake")


def test_ctrl_c(install: Callable[[Callable[[], int]], None], capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> int:
        raise KeyboardInterrupt

    install(interrupted)
    assert exit_code("fake") == 130
    assert capsys.readouterr().err == ""


PRINTS_PLAINLY = """
import sys, types
from minipaged.cli import main as cli
module = types.ModuleType("fake_command")
module.add_arguments = lambda parser: None
module.run = lambda args: print("text") or 0
sys.modules["fake_command"] = module
cli.COMMANDS = (cli.Command("fake", "fake_command", "prints", "minipaged fake"),)
sys.exit(cli.main(["fake"]))
"""


@pytest.mark.parametrize(
    "command", [[*PYTHON_M, "kv", "OPT-13B"], [sys.executable, "-c", PRINTS_PLAINLY]], ids=["rich", "print"]
)
def test_a_reader_that_leaves_early(command: list[str]) -> None:
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()  # long before the command has anything to print
        errors = process.stderr.read()
    assert process.returncode == cli.EXIT_BROKEN_PIPE
    assert errors == b""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "invalid choice: 'nonsense'"),
        (["fake", "--nonsense"], "unrecognized arguments: --nonsense"),
        (["fake", "--count", "three"], "argument --count: invalid int value: 'three'"),
        (["--nonsense"], "unrecognized arguments: --nonsense"),
    ],
)
def test_bad_arguments_are_one_line_and_exit_code_2(
    install: Callable[[Callable[[], int]], None],
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    install(lambda: 0)
    assert exit_code(*arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert "--help" in error


def test_no_command_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code() == 2
    error = capsys.readouterr().err
    for command in cli.COMMANDS:
        assert command.name in error


def test_help_lists_the_commands_and_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("--help") == 0
    shown = " ".join(capsys.readouterr().out.split())
    for command in cli.COMMANDS:
        assert f"{command.name} {command.help}" in shown
    assert "Example: minipaged demo" in shown


def test_help_of_a_command_has_an_example(
    install: Callable[[Callable[[], int]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    install(lambda: 0)
    assert exit_code("fake", "--help") == 0
    shown = capsys.readouterr().out
    assert "does what the test says" in shown
    assert "Example: minipaged fake --count 3" in shown
    assert "--count COUNT" in shown


@pytest.mark.parametrize(
    "command", [c for c in cli.COMMANDS if find_spec(c.module)], ids=lambda command: command.name
)
def test_every_command_shows_its_help_without_torch(command: cli.Command) -> None:
    script = (
        "import sys\n"
        "from minipaged.cli.main import main\n"
        "try:\n"
        f"    main([{command.name!r}, '--help'])\n"
        "finally:\n"
        "    heavy = {'torch', 'transformers', 'triton', 'rich', 'numpy'} & set(sys.modules)\n"
        "    assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert " ".join(f"Example: {command.example}".split()) in " ".join(done.stdout.split())


def test_version_as_a_module() -> None:
    done = subprocess.run([*PYTHON_M, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"minipaged {__version__}\n"
