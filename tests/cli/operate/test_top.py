from __future__ import annotations

import pytest
from typer.testing import CliRunner

from tests.doubles.http_server import answering
from trimodal.cli.app import app


def top(*arguments: str):
    return CliRunner().invoke(app, ["top", *arguments], env={"COLUMNS": "200", "TERM": "dumb"})


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--url", "127.0.0.1:1", "--interval", "0.1"), "no metrics at 127.0.0.1:1: connection refused"),
        (("--gateway", "nowhere:x"), "'nowhere:x' is no address: write host:port, or a URL of http or https"),
    ],
)
def test_no_server_and_no_address_are_one_sentence(arguments, told):
    done = top("--once", *arguments)
    assert done.exit_code == 1
    assert done.stderr == f"trimodal top: {told}\n"


def test_the_gateway_s_port_is_not_the_server_s():
    with answering(lambda request: (200, b"trimodal_gateway_in_flight 0.0\n")) as port:
        done = top("--once", "--url", f"127.0.0.1:{port}", "--interval", "0.1")
    assert done.exit_code == 1
    assert done.stderr.endswith("its page is not of a server: it may be one for --gateway\n")


def test_a_key_that_nobody_would_get_is_refused():
    done = top("--once", "--api-key-file", "/dev/null")
    assert done.exit_code == 2
    assert "--api-key-file is of a gateway: it goes with --gateway" in done.output
