from pathlib import Path

import pytest

from trimodal.errors import InvalidArgument
from trimodal.explain import run
from trimodal.explain.requests import Question
from trimodal.explain.run import Server, explain


async def test_a_file_that_cannot_be_read_is_told_before_a_connection_is_opened(monkeypatch) -> None:
    monkeypatch.setattr(run, "GrpcTransport", None)
    with pytest.raises(InvalidArgument, match="--image /no/such.png: no such file"):
        await explain(Question("vision", image=Path("/no/such.png")), Server("127.0.0.1:1"))
