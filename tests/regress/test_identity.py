import pytest

from trimodal.client import ConnectError
from trimodal.regress.identity import differences, identify, plain
from trimodal.regress.values import ServedModel, Server


def server(version="2.51", **models):
    served = {name: ServedModel(version="1", parameters=found) for name, found in models.items()}
    return Server(name="triton", version=version, models=served)


def test_differences():
    before = server(llm={"a": "1", "b": "2", "gone": ""}, vision={"x": "1"})
    after = server("2.60", llm={"a": "1", "b": "3", "new": "4"}, speech={"y": "1"})
    assert differences(before, after) == [
        "server triton 2.51 → triton 2.60",
        "llm.b 2 → 3",
        'llm.gone "" → unset',
        "llm.new unset → 4",
    ]
    assert differences(before, before) == []
    other = Server(name="triton", version="2.51", models={"llm": ServedModel(version="2", parameters={})})
    assert "llm version 1 → 2" in differences(before, other)


def test_passwords_are_not_kept():
    kept = plain({"store": "redis://user:p:w@host:6379/0", "b": "redis://:secret@h", "a": "redis://host/x@y"})
    assert kept == {"a": "redis://host/x@y", "b": "redis://…@h", "store": "redis://…@host:6379/0"}
    assert list(kept) == ["a", "b", "store"]
    assert plain({"store": "redis://:an@inside@host/0"}) == {"store": "redis://…@host/0"}


async def test_nobody_there():
    with pytest.raises(ConnectError, match="no server at 127.0.0.1:1"):
        await identify("127.0.0.1:1", [], 5.0)
