from __future__ import annotations

from pathlib import Path

import pytest

from tests.check.cases.base import BATCHES
from trimodal.check.checks.python_code import check_python
from trimodal.check.findings import Target
from trimodal.check.repository import read_config

CLASS = "class TritonPythonModel:\n    async def execute(self, requests):\n"


def found(folder: Path, code: str) -> list[tuple[str, int]]:
    """Rule and line of what is found in a model.py."""
    (folder / "1").mkdir()
    (folder / "1" / "model.py").write_text(code)
    (folder / "config.pbtxt").write_text(BATCHES)
    config = read_config(folder, folder / "config.pbtxt")
    return [(one.rule, one.place.line) for one in check_python(config, Target((24, 10)))]


@pytest.mark.parametrize(
    ("head", "call"),
    [
        ("import time", "time.sleep(1)"),
        ("import time as t", "t.sleep(1)"),
        ("from time import sleep", "sleep(1)"),
        ("from time import sleep as nap", "nap(1)"),
        ("import subprocess", "subprocess.run(['ls'], check=True)"),
        ("import urllib.request", "urllib.request.urlopen('http://host')"),
        (
            "import triton_python_backend_utils as pb_utils",
            "pb_utils.InferenceRequest(model_name='x', requested_output_names=[], inputs=[]).exec()",
        ),
    ],
)
def test_calls_that_block(head: str, call: str, tmp_path: Path) -> None:
    assert found(tmp_path, f"{head}\n{CLASS}        {call}\n        return []\n") == [("TRI114", 4)]


@pytest.mark.parametrize(
    "body",
    [
        "        await self.sleep(1)\n",
        "        time.sleep(1)\n",  # of whatever: not imported
        "        def later():\n            import time\n            time.sleep(1)\n        later\n",
        "        self.session.exec()\n",
        "        pass\n    def execute_here(self):\n        from time import sleep\n        sleep(1)\n",
    ],
)
def test_calls_that_do_not(body: str, tmp_path: Path) -> None:
    assert found(tmp_path, CLASS + "        if not requests:\n            return []\n" + body) == []


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import no_such_module.part\n", [("TRI112", 1)]),
        ("from no_such_module import a, b\n", [("TRI112", 1)]),
        ("from . import helpers\n", []),
        ("import json, os.path\nimport triton_python_backend_utils as pb_utils\n", []),
        ("if False:\n    import no_such_module\n", []),
        ("def f():\n    import no_such_module\n", []),
    ],
)
def test_imports(code: str, expected: list[tuple[str, int]], tmp_path: Path) -> None:
    assert found(tmp_path, code + CLASS + "        return []\n") == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("x = \x00", [("TRI110", 1)]),
        (f"x = {'-' * 20000}1", [("TRI110", 1)]),
        ("from elsewhere_of_the_project import TritonPythonModel\n", [("TRI112", 1)]),
        ("from json import *\n", []),
        ("try:\n    from json import loads as TritonPythonModel\nexcept ImportError:\n    raise\n", []),
        ("import json\nclass TritonPythonModel(json.JSONDecoder):\n    pass\n", []),
        (
            "class TritonPythonModel:\n    if True:\n        def execute(self, r):\n            return []\n",
            [],
        ),
        ("class Other:\n    pass\n", [("TRI111", 1)]),
    ],
)
def test_the_class(code: str, expected: list[tuple[str, int]], tmp_path: Path) -> None:
    assert found(tmp_path, code) == expected


def test_the_model_is_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    code = f"open({str(mark)!r}, 'w').close()\n{CLASS}        return []\n"
    (tmp_path / "m").mkdir()
    assert found(tmp_path / "m", code) == []
    assert not mark.exists()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("        pass\n", [("TRI119", 2)]),
        ("        return None\n", [("TRI119", 3)]),
        ("        if not requests:\n            return\n        return []\n", [("TRI119", 4)]),
        ("        for one in requests:\n            one.get_response_sender()\n", []),
        ("        raise NotImplementedError\n", []),
    ],
)
def test_what_execute_returns(body: str, expected: list[tuple[str, int]], tmp_path: Path) -> None:
    assert found(tmp_path, CLASS + body) == expected


def test_a_name_that_is_no_constant_is_not_judged(tmp_path: Path) -> None:
    body = "        pb_utils.get_input_tensor_by_name(requests[0], self.name)\n        return []\n"
    assert found(tmp_path, CLASS + body) == []


def test_a_long_chain_of_elif(tmp_path: Path) -> None:
    chain = "".join(f"        elif {number}: pass\n" for number in range(1000))
    assert found(tmp_path, f"{CLASS}        if 0: pass\n{chain}        return []\n") == []
