import json

import pytest

from tests.vision.pictures import artefact
from trimodal.errors import ArtefactError
from trimodal.vision.artefact import InputSpec, read_classifier


def test_reads_input_and_labels_whatever_the_runtime(tmp_path):
    found = read_classifier(artefact(tmp_path / "onnx", runtime="tensorrt", classes=2, height=32, width=16))
    assert found.labels == ("class 0", "class 1")
    assert (found.input.height, found.input.width, found.input.resize) == (32, 16, "exact")


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
