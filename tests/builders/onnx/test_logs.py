"""What the quantiser advises is not shown, and what others log afterwards is."""

import logging

import pytest

from tests.builders.scripts import importable

pytestmark = pytest.mark.build

with importable():
    from steps.onnx.logs import without_advice


def test_only_errors_are_logged_meanwhile(caplog):
    @without_advice()
    def quantise():
        logging.warning("consider to prepare the model")
        logging.error("it failed")

    quantise()
    logging.warning("said later")
    assert caplog.messages == ["it failed", "said later"]
