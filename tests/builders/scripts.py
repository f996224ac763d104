"""Runs a build script's `main` in this process, as its command line would: torch is imported once."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from trimodal.build_support import operator_errors

BUILD = Path(__file__).resolve().parents[2] / "build"


@contextmanager
def importable() -> Iterator[None]:
    """build/ on the path, as for a script that is run as a file.

    What is added meanwhile stays: onnxruntime.transformers adds its own folder once, when it is imported.
    """
    sys.path.insert(0, str(BUILD))
    try:
        yield
    finally:
        sys.path.remove(str(BUILD))


class Later:
    """A module, also one of build/, imported when a test first uses it: every worker collects every file."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if (
            attribute.startswith("_") or attribute == "pytestmark"
        ):  # pytest asks every global of a file whether it is a test
            raise AttributeError(attribute)
        with importable():
            return getattr(importlib.import_module(self._name), attribute)


def run(script: str, *arguments: object) -> None:
    """Fails with SystemExit(1), its sentence on stderr, where the script does."""
    with mock.patch.object(sys, "argv", [f"{script}.py", *map(str, arguments)]), operator_errors():
        importlib.import_module(script).main()


def refusal(capsys: pytest.CaptureFixture[str], script: str, *arguments: object) -> str:
    """The one sentence with which the script ends, exit code 1."""
    with pytest.raises(SystemExit) as ended:
        run(script, *arguments)
    assert ended.value.code == 1
    (sentence,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    return sentence
