"""Stored bytes: only what was packed for this very scope and key comes back."""

import json
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cache.stores.rig import axis, entry
from trimodal.cache.stores.base import StoreError
from trimodal.cache.stores.codec import (
    _check,
    digest,
    pack,
    read_vectors,
    unpack,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def sealed(body: bytes) -> bytes:
    """As an attacker would who knows the format."""
    return _check("p", "k", body) + body


@given(TEXTS, TEXTS, st.integers(0, 1 << 40), st.floats(allow_nan=False, allow_infinity=False))
def test_what_was_packed_comes_back(text: str, answer: str, tokens: int, expires_at: float) -> None:
    kept = entry(answer, text=text, completion_tokens=tokens, expires_at=expires_at)
    assert unpack("p", "k", pack("p", "k", kept)) == kept


def test_names_stay_what_they_were() -> None:
    """Answers that a server stored before an update are found, and cleared, after it."""
    before = "fd4af6b661ff7276702d33b090e915d24db748a62be0a0be9ea5e2ea66ab6897"
    assert digest("a", "é", "\ud800", "") == before


def test_only_for_its_place_and_key() -> None:
    packed = pack("p", "k", entry())
    assert unpack("p", "k2", packed) is None
    assert unpack("pk", "", packed) is None


@given(st.data())
def test_a_changed_byte_is_no_answer(data: st.DataObject) -> None:
    packed = bytearray(pack("p", "k", entry()))
    at = data.draw(st.integers(0, len(packed) - 1))
    packed[at] ^= data.draw(st.integers(1, 255))
    assert unpack("p", "k", bytes(packed)) is None
    assert unpack("p", "k", bytes(packed[:at])) is None


@given(st.binary(max_size=200))
def test_any_bytes_are_no_answer(noise: bytes) -> None:
    assert unpack("p", "k", noise) is None
    assert unpack("p", "k", sealed(noise)) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"answer": None},
        {"answer": 7},
        {"answer": ["x"]},
        {"completion_tokens": "7"},
        {"completion_tokens": 7.0},
        {"completion_tokens": -1},
        {"max_tokens": True},
        {"expires_at": "never"},
        {"expires_at": float("inf")},
        {"stored_at": float("nan")},
        {"stored_at": None},
        {"more": 1},
    ],
    ids=repr,
)
def test_values_of_the_wrong_kind_are_no_answer(changes: dict[str, object]) -> None:
    body = {**asdict(entry()), **changes}
    assert unpack("p", "k", sealed(json.dumps(body).encode())) is None
    for name in asdict(entry()):
        less = {key: value for key, value in asdict(entry()).items() if key != name}
        assert unpack("p", "k", sealed(json.dumps(less).encode())) is None


def test_deep_json_is_no_answer() -> None:
    assert unpack("p", "k", sealed(b"[" * 100_000)) is None


@pytest.mark.parametrize(
    "changes",
    [{"answer": "\ud800"}, {"expires_at": float("nan")}, {"stored_at": float("inf")}, {"text": b"x"}],
)
def test_what_has_no_form_is_not_packed(changes: dict[str, object]) -> None:
    with pytest.raises(StoreError, match="not stored"):
        pack("p", "k", entry(**changes))  # type: ignore[arg-type]


@given(st.lists(st.text(), max_size=4), st.lists(st.text(), max_size=4))
def test_digests_of_different_parts_differ(first: list[str], second: list[str]) -> None:
    assert (digest(*first) == digest(*second)) == (first == second)


def test_only_unit_vectors_of_this_length_are_read() -> None:
    good, other = axis(3).tobytes(), axis(3, 8).tobytes()
    noise = [b"", b"x", None, "text", 7, other, bytes(64), b"\xff" * 64, (axis(0) * 1e30).tobytes()]
    rows, vectors = read_vectors([*noise, good, axis(5).tobytes(), other], 16)
    assert rows == [len(noise), len(noise) + 1]
    assert np.array_equal(vectors, [axis(3), axis(5)])
    for packed in ([], noise):
        rows, vectors = read_vectors(packed, 16)
        assert rows == []
        assert vectors.shape == (0, 16)
