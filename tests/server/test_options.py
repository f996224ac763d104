import pytest

from trimodal.errors import ServerError
from trimodal.server.options import PROFILES, ServerOptions, parse_profile


def test_the_profiles():
    assert [parse_profile(name) for name in PROFILES] == ["cpu", "cuda", "tensorrt"]
    with pytest.raises(ServerError, match="^gpu is not a profile: cpu, cuda or tensorrt .* gpu are tensorrt"):
        parse_profile("gpu")
    with pytest.raises(ServerError, match="^tpu is not a profile: cpu, cuda or tensorrt$"):
        parse_profile("tpu")


def test_engines_are_where_the_build_scripts_put_them(monkeypatch, tmp_path):
    monkeypatch.delenv("TRIMODAL_ENGINES", raising=False)
    assert ServerOptions().engines is None
    monkeypatch.setenv("TRIMODAL_ENGINES", str(tmp_path))
    assert ServerOptions().engines == tmp_path
    assert ServerOptions(engines=None).engines is None
