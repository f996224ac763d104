"""`trimodal bench speech` as a user calls it: refusals at once, and live streams once on the fake engine."""

import pytest

from tests.bench.test_commands import run


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--policy", "best"], "--policy best: known are live, agreement, vad, window"),
        (["--streams", "0"], "streams"),
        (["--chunk-ms", "10"], "chunk-ms"),
        (["--set", "engine=fake"], "write it as model.parameter=value"),
        (["--samples", "/nowhere"], "--samples /nowhere/samples.json: FileNotFoundError"),
    ],
)
def test_wrong_options_are_refused_before_anything_starts(arguments, sentence):
    result = run("speech", *arguments)
    assert result.exit_code in (1, 2)
    assert sentence in result.output.replace("│\n│", "").replace("\n", "")
    assert "Traceback" not in result.output
