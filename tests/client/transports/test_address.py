"""Addresses of gRPC endpoints: what is read of them, and what is none."""

from __future__ import annotations

import re

import pytest

from trimodal.client.transports.address import Address, read_address
from trimodal.client.transports.base import Timeouts
from trimodal.client.transports.grpc import GrpcTransport


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8001", Address("127.0.0.1:8001", "127.0.0.1", None, tls=False)),
        ("grpc://host:8001:8003", Address("host:8001", "host", 8003, tls=False)),
        ("grpcs://host:8001", Address("host:8001", "host", None, tls=True)),
        ("[::1]:8001:8003", Address("[::1]:8001", "::1", 8003, tls=False)),
    ],
)
def test_an_address_may_name_the_health_page(text: str, address: Address) -> None:
    assert read_address(text) == address


@pytest.mark.parametrize(
    "text",
    [
        *("", "host", "host:", "host:x", "host:1:x", "host:1:2:3", "::1:8001", "[]:1", "a b:1", "a/b:1"),
        *("http://host:1", "grpc://http://host:1", "://host:1"),
    ],
)
def test_other_addresses_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="^host:port of Triton's gRPC endpoint is needed"):
        read_address(text)
    with pytest.raises(ValueError, match=f"url is '{re.escape(text)}': host:port of Triton's"):
        GrpcTransport(text, Timeouts())
