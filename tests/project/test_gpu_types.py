"""mypy against the stubs of the GPU libraries finds what is wrong, and only that."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.doubles.gpu_libraries import REPOSITORY, typings

MISUSE = REPOSITORY / "tests" / "gpu" / "misuse"
MARK = re.compile(r"# expect(?: on (?P<version>[\d.]+))?: (?P<codes>[a-z, -]+)$")
# The libraries' own dependencies are not what is checked, and take a minute.
CONFIGURATION = """[mypy]
strict = True
[mypy-torch.*,transformers.*]
follow_imports = skip
"""


@pytest.mark.skipif(typings() is None, reason="no type stubs here")
@pytest.mark.parametrize("version", ["10.14", "11.4"])
def test_seeded_misuse_fails_and_right_use_passes(version, tmp_path):
    configuration = tmp_path / "mypy.ini"
    configuration.write_text(CONFIGURATION)
    files = sorted(MISUSE.glob("tensorrt*.py"))
    assert len(files) == 2
    folders = [typings() / f"tensorrt-{version}", typings() / "tensorrt_llm-1.2"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", configuration, "--cache-dir", os.devnull, *files],
        env={**os.environ, "MYPYPATH": ":".join(map(str, folders))},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=150,
    )
    found = re.findall(r"/(\w+\.py):(\d+): error: .*\[([a-z-]+)\]$", done.stdout, re.MULTILINE)
    assert (done.returncode, done.stderr) == (1, "")
    assert {(name, int(line), code) for name, line, code in found} == expected(files, version)


def expected(files: list[Path], version: str) -> set[tuple[str, int, str]]:
    marked = set()
    for file in files:
        for number, line in enumerate(file.read_text().splitlines(), 1):
            mark = MARK.search(line)
            if mark and mark["version"] in (None, version):
                marked |= {(file.name, number, code) for code in mark["codes"].split(", ")}
    assert len(marked) > 15
    return marked


def test_gpu_types_refuses_to_check_against_nothing(tmp_path):
    done = subprocess.run(
        [REPOSITORY / "scripts" / "gpu_types"],
        env={**os.environ, "TRIMODAL_TYPINGS": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"gpu_types: no {tmp_path}/tensorrt-10.14/tensorrt\n"
