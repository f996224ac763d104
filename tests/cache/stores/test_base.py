"""Which stores are files, and which are none."""

import pytest

from trimodal.cache.stores.base import Limits, is_file, open_store
from trimodal.errors import OperatorError


@pytest.mark.parametrize(
    ("store", "file"), [("answers.sqlite", True), ("/a:b/c", True), ("redis://h:1/0", False)]
)
def test_a_file_is_told_from_a_url(store: str, file: bool) -> None:
    assert is_file(store) is file


def test_another_kind_is_refused_without_its_password() -> None:
    with pytest.raises(OperatorError) as caught:
        open_store("mysql://me:hunter2@host/db", Limits())
    assert str(caught.value) == "cache_store 'mysql:…': a file's path or a URL of redis, rediss is needed"
