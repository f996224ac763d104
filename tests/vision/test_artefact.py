import json
import os
import subprocess
import sys

import pytest

from tests.vision.pictures import artefact
from trimodal.errors import ArtefactError
from trimodal.vision.artefact import InputSpec, read_classifier


def test_reads_input_and_labels_whatever_the_runtime(tmp_path):
    found = read_classifier(artefact(tmp_path / "onnx", runtime="tensorrt", classes=2, height=32, width=16))
    assert found.labels == ("class 0", "class 1")
    assert (found.input.height, found.input.width, found.input.resize) == (32, 16, "exact")


def test_labels_are_utf_8_whatever_the_locale(tmp_path):
    directory = artefact(tmp_path / "a", classes=2)
    (directory / "labels.json").write_text('["Käse", "猫"]', encoding="utf-8")
    program = (
        "import sys; from pathlib import Path; from trimodal.vision.artefact import read_classifier; "
        "print(ascii(read_classifier(Path(sys.argv[1])).labels))"
    )
    posix = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    told = subprocess.run(
        [sys.executable, "-c", program, directory],
        env={**os.environ, **posix}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert told.stdout.strip() == ascii(("Käse", "猫")), told.stderr


@pytest.mark.parametrize("labels", ["[1, 2, 3]", '["a"]', '{"a": 1}', "nonsense"])
def test_labels_that_do_not_fit_are_refused(tmp_path, labels):
    directory = artefact(tmp_path / "a")
    (directory / "labels.json").write_text(labels)
    with pytest.raises(ArtefactError, match=r"labels\.json.*build again with: python build"):
        read_classifier(directory)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"height": 0}, "height"),
        ({"mean": [1]}, "mean"),
        ({"resize": "stretch"}, "resize"),
        ({"depth": 3}, "depth"),
    ],
)
def test_an_odd_input_is_refused_by_field(tmp_path, spec, field):
    directory = artefact(tmp_path / "a")
    manifest = json.loads((directory / "manifest.json").read_text())
    manifest["extra"]["input"] |= spec
    (directory / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ArtefactError, match=rf"extra\.input\.{field}"):
        read_classifier(directory)


def test_a_crop_larger_than_the_resized_side_makes_no_sense():
    with pytest.raises(ValueError, match="resize_to must be at least height and width"):
        InputSpec(height=224, width=224, resize="crop", resize_to=200)
