import re

import pytest

from trimodal.errors import ServerError
from trimodal.server.options import PROFILES, ServerOptions, parse_otlp, parse_profile


def test_the_profiles():
    assert [parse_profile(name) for name in PROFILES] == ["cpu", "cuda", "tensorrt"]
    with pytest.raises(ServerError, match="^tpu is not a profile: cpu, cuda or tensorrt$"):
        parse_profile("tpu")


def test_traces_go_to_a_url():
    assert parse_otlp("http://collector:4318") == "http://collector:4318/v1/traces"
    assert parse_otlp("https://c/otlp/v1/traces") == "https://c/otlp/v1/traces"
    for text in ("collector:4318", "http://", "grpc://c:4317", "http://[::1", "http://c:x"):
        with pytest.raises(ServerError, match=f"^--otlp {re.escape(text)}: a URL of http or https is needed"):
            parse_otlp(text)


def test_engines_are_where_the_build_scripts_put_them(monkeypatch, tmp_path):
    monkeypatch.delenv("TRIMODAL_ENGINES", raising=False)
    assert ServerOptions().engines is None
    monkeypatch.setenv("TRIMODAL_ENGINES", str(tmp_path))
    assert ServerOptions().engines == tmp_path
    assert ServerOptions(engines=None).engines is None
