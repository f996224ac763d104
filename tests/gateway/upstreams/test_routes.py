"""Versions' shares of a model's requests: written, read, and kept to."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.doubles.waiting import until
from tests.gateway.conftest import fails, fake_triton
from tests.gateway.upstreams.servers import Servers
from trimodal.client.transports.base import Request
from trimodal.errors import ModelNotFound, SettingsError, Unavailable
from trimodal.gateway.upstreams.routes import key_of, read_routes, set_route, version_for

KEYS = [f"tenant-{number}".encode() for number in range(2000)]


def text(value: str) -> np.ndarray:
    return np.array([value.encode()], object)


def test_the_rest_goes_to_the_version_that_had_it(tmp_path: Path) -> None:
    file = tmp_path / "routes.toml"
    assert read_routes(file) == {}
    assert set_route(file, "llm", {"1": 100.0}) == {"1": 100}
    set_route(file, "vision", {"3": 50.0, "4": 50.0})
    assert set_route(file, "llm", {"2": 5.0}) == {"2": 5, "1": 95}
    assert read_routes(file) == {"llm": {"1": 95, "2": 5}, "vision": {"3": 50, "4": 50}}
    assert set_route(file, "llm", {"1": 100.0}) == {"1": 100}, "back, by one call"
    assert set_route(file, "llm", {}) == {}
    assert read_routes(file) == {"vision": {"3": 50, "4": 50}}


def test_comments_of_a_file_stay(tmp_path: Path) -> None:
    file = tmp_path / "routes.toml"
    kept = '# Asked on Mondays.\n\n# the bank\'s\n[[route]]\nmodel = "vision"\nversion = "3"\npercent = 100\n'
    share = '\n# the new one\n[[route]]\nmodel = "llm"\nversion = "1"\npercent = {} # so far\n'
    file.write_text(kept + share.format(100.0))
    set_route(file, "llm", {"2": 5.0})
    new = '\n[[route]]\nmodel = "llm"\nversion = "2"\npercent = 5.0\n'
    assert file.read_text() == kept + share.format(95.0) + new
    set_route(file, "llm", {"2": 100.0, "1": 0.0})
    assert file.read_text() == kept + "\n" + new.replace("5.0", "100.0")
    set_route(file, "llm", {})
    assert file.read_text().rstrip() == kept.rstrip()


@pytest.mark.parametrize(
    ("shares", "told"),
    [
        ({"2": 5.0}, "whose are the other 95 % of llm? no other version has a share: name it, too"),
        ({"2": 60.0, "1": 60.0}, "the versions of llm have 120 % together: 100 are needed"),
        ({"2": 120.0}, "less than or equal to 100"),
        ({"two": 100.0}, "version"),
    ],
)
def test_shares_that_cannot_be_are_refused_and_nothing_is_written(
    tmp_path: Path, shares: dict[str, float], told: str
) -> None:
    file = tmp_path / "routes.toml"
    with pytest.raises(SettingsError) as refused:
        set_route(file, "llm", shares)
    assert told in str(refused.value)
    assert not file.exists()


def test_each_key_keeps_its_version_and_a_version_that_grows_keeps_its_keys() -> None:
    before = {key: version_for({"1": 95.0, "2": 5.0}, "llm", key) for key in KEYS}
    assert 60 < Counter(before.values())["2"] < 140
    after = {key: version_for({"1": 80.0, "2": 20.0}, "llm", key) for key in KEYS}
    assert 320 < Counter(after.values())["2"] < 480
    assert all(after[key] == "2" for key, version in before.items() if version == "2")
    assert {version_for({"9": 50.0, "10": 50.0}, "llm", key) for key in KEYS} == {"9", "10"}


def test_what_stays_together() -> None:
    talk = {"messages": text('[{"role": "user", "content": "hi"}]')}
    assert key_of(Request("llm", {**talk, "tenant": text("acme")})) == b"acme"
    assert key_of(Request("llm", talk)) == b"hi"
    assert key_of(Request("speech", {}, parameters={"sequence_id": 7})) == b"7"
    assert key_of(Request("vision", {"image": np.array([[b"png"]], object)})) == b"png"
    assert key_of(Request("vision", {})) == b""


async def test_requests_go_to_versions_and_back_by_one_call(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file, fake = tmp_path / "routes.toml", fake_triton()
    set_route(file, "llm", {"1": 50.0, "2": 50.0})
    async with Servers(monkeypatch, fake, routes=file) as servers:

        async def ask() -> Counter[str]:
            """Which version got how many of 40 tenants' requests."""
            sent = len(fake.requests)
            for number in range(40):
                assert (await servers.client.complete("hi", tenant=f"tenant-{number}")).text
            return Counter(one.model for one in fake.requests[sent:] if one.name == "llm" and one.inputs)

        first = await ask()
        assert first["llm@1"] + first["llm@2"] == 40
        assert min(first.values()) > 5
        assert await ask() == first, "sticky"
        set_route(file, "llm", {"1": 100.0})
        await until(lambda: servers.pool._routes.contents["llm"] == {"1": 100.0})
        assert await ask() == {"llm@1": 40}
        assert servers.pool.routed["llm", "1"] == 2 * first["llm@1"] + 40
        assert (await servers.client.complete("hi", model="llm@2")).text
        assert fake.requests[-1].model == "llm@2"


async def test_a_version_that_one_server_lacks_is_asked_of_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As while it is rolled out; the server that lacks it goes on with those that it has."""
    file, fakes = tmp_path / "routes.toml", [fake_triton(), fake_triton()]
    set_route(file, "llm", {"2": 100.0})
    for fake in fakes:  # it is gone since they were looked at
        fake._versions = {"llm": ("1", "2")}
    own = fakes[0].functions["llm"]

    def lacks(request: Request) -> object:
        if request.model != "llm" and request.inputs:
            raise ModelNotFound("the server has no model 'llm' version 2")
        return own(request)

    fakes[0].functions["llm"] = lacks  # type: ignore[assignment]
    async with Servers(monkeypatch, *fakes, routes=file) as servers:
        for number in range(20):
            assert (await servers.client.complete(f"prompt {number}")).text
        assert any(one.moved for one in servers.pool.servers)
        assert all(one.models["llm"] for one in servers.pool.servers)
        fakes[1].functions["llm"] = lacks  # type: ignore[assignment]
        with pytest.raises(ModelNotFound, match="version 2"):
            await servers.client.complete("hi")


async def test_a_server_that_lacks_a_version_for_the_assistant_has_the_assistant(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file, fakes = tmp_path / "routes.toml", [fake_triton(), fake_triton()]
    set_route(file, "llm", {"2": 100.0})
    error = ModelNotFound("answer: the server has no model 'llm' version 2, only 1")
    for fake in fakes:
        fake._versions = {"llm": ("1", "2")}
        fake.functions["assistant"] = fails(error)
    async with Servers(monkeypatch, *fakes, routes=file) as servers:
        with pytest.raises(ModelNotFound, match="only 1"):
            await servers.client.ask("hi").answer()
        assert all(one.models["assistant"] for one in servers.pool.servers), "no other question suffers"


def test_the_share_of_a_version_that_is_not_loaded_is_the_others() -> None:
    shares = {"1": 50.0, "2": 25.0, "3": 25.0}
    usual = {key: version_for(shares, "llm", key) for key in KEYS}
    without = {key: version_for(shares, "llm", key, {"1", "2"}) for key in KEYS}
    assert all(without[key] == version for key, version in usual.items() if version != "3")
    moved = Counter(without[key] for key, version in usual.items() if version == "3")
    assert moved["1"] > moved["2"] > 0


async def test_a_route_to_a_version_that_is_not_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, triton = tmp_path / "routes.toml", fake_triton()
    set_route(file, "llm", {"1": 50.0, "2": 50.0})
    async with Servers(monkeypatch, triton, routes=file) as servers:
        for number in range(20):
            assert (await servers.client.complete("hi", tenant=f"tenant-{number}")).text
            async for _ in servers.client.ask("hi", tenant=f"tenant-{number}"):
                pass
        asked = [one for one in triton.requests if "probe" not in one.parameters]
        assert {one.model for one in asked} == {"llm@1", "assistant"}
        assert {one.parameters.get("versions") for one in asked} == {None, '{"llm": "1"}'}
        assert (servers.pool.state["llm"], servers.pool.versions) == (True, {"llm": {"1": True, "2": False}})
        await until(lambda: "no server has loaded: {'llm': ['2']}" in caplog.text)
        set_route(file, "llm", {"1": 0.0, "2": 100.0})
        await until(lambda: not servers.pool.state["llm"])
        with pytest.raises(Unavailable, match="no version is loaded that its requests are to go to"):
            await servers.client.complete("hi")
        assert caplog.text.count("no server has loaded") == 1, "not with each look"


@pytest.mark.parametrize("why", ["no such file or directory", "file name too long"])
async def test_a_file_that_cannot_be_read_leaves_the_routes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture, why: str
) -> None:
    """Editors move it away for a moment: the version that is tried must not get all requests.

    Where its folder could not be read either, as on a disk of the network, the servers were not looked at.
    """
    file = tmp_path / "routes.toml"
    set_route(file, "llm", {"1": 100.0})
    async with Servers(monkeypatch, fake_triton(), routes=file) as servers:
        file.rename(tmp_path / "routes.toml~")
        if why == "file name too long":  # as ESTALE and EACCES, which root does not get, it is not ENOENT
            file.symlink_to("x" * 300)
        await until(lambda: f"what the file had before stays in force: {file}: {why}" in caplog.text)
        assert servers.pool.routes == {"llm": {"1": 100.0}}
        servers.fakes["host-0:8001"].reachable = False
        await until(lambda: not servers.pool.state["llm"])
        (tmp_path / "routes.toml~").rename(file)
        set_route(file, "vision", {"1": 100.0})
        await until(lambda: "vision" in servers.pool.routes)


def test_a_file_that_cannot_be_read_is_not_one_without_routes(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="file name too long"):
        read_routes(tmp_path / ("x" * 300))
