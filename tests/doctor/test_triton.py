from __future__ import annotations

import pytest

from tests.server.artefacts import PLAN, add_model, python_model
from trimodal.doctor.triton import check_triton
from trimodal.errors import ServerError
from trimodal.repository import read_model
from trimodal.server import installation, preflight


@pytest.fixture
def models(tmp_path):
    """One of the Python backend, one of TensorRT's."""
    add_model(tmp_path, PLAN)
    add_model(tmp_path, python_model("vision_rank", classifier="x"))
    return [read_model(tmp_path, name, "tensorrt") for name in ("vision_rank", "vision_classify")]


@pytest.fixture
def container(tmp_path, monkeypatch):
    root = tmp_path / "opt"
    for place in ("bin", "backends/python", "backends/tensorrt"):
        (root / place).mkdir(parents=True)
    (root / "bin" / "tritonserver").touch()
    (root / "backends" / "python" / installation.STUB).touch()
    monkeypatch.setenv("TRIMODAL_TRITONSERVER", str(root))
    monkeypatch.setenv("TRITON_SERVER_VERSION", "2.68.0")
    return root


def levels(models):
    return {check.place.name: check.severity for check in check_triton(models)}


def test_a_container(container, models):
    checks = {check.place.name: check for check in check_triton(models)}
    assert {check.severity for check in checks.values()} == {"ok"}
    assert list(checks) == ["python", "numpy", "tritonserver", "python backend", "tensorrt backend"]
    assert checks["tritonserver"].sentence == f"2.68.0 in {container}"


def test_the_wheel(monkeypatch, models):
    monkeypatch.delenv("TRIMODAL_TRITONSERVER", raising=False)
    monkeypatch.setattr(installation, "CONTAINER", installation.Path("/nonexistent"))
    checks = {check.place.name: check for check in check_triton(models)}
    assert checks["libpython"].severity == "ok"
    assert "nvidia-pytriton" in checks["tritonserver"].sentence
    assert checks["tensorrt backend"].severity == "error"
    assert checks["tensorrt backend"].remedy.endswith("container, or choose --profile cuda")


def test_what_is_missing(container, models, monkeypatch):
    (container / "backends" / "python" / installation.STUB).write_bytes(b"..libpython3.7.so.1.0..")
    (container / "backends" / "tensorrt").rmdir()

    def numpy():
        raise ServerError("numpy 2.1.0 is installed, but it needs numpy below 2: pip install 'numpy<2'")

    monkeypatch.setattr(preflight, "check_numpy", numpy)
    found = levels(models)
    assert [found[name] for name in ("numpy", "python backend", "tensorrt backend")] == ["error"] * 3
    assert found["tritonserver"] == "ok"


def test_no_tritonserver_at_all(monkeypatch, models):
    monkeypatch.setenv("TRIMODAL_TRITONSERVER", "/nonexistent/bin/tritonserver")
    assert levels(models) == {"python": "ok", "numpy": "ok", "tritonserver": "error"}
