import numpy as np
import pytest

from tests.doubles.onnx_texts import write_shapes, write_tokenizer
from trimodal.errors import ArtefactError
from trimodal.runtimes.text_batches import groups, open_tokenizer, padded, shape_of


def test_lengths_that_differ_much_are_run_apart():
    assert list(groups([50, 3, 4, 200, 3, 60])) == [[1, 4, 2], [0, 5], [3]]
    assert list(groups([7])) == [[0]]
    assert list(groups([])) == []


def test_rows_are_filled_up_with_zeros_that_the_mask_leaves_out():
    ids, mask = padded([[5], [7, 8, 9]])
    np.testing.assert_array_equal(ids, [[5, 0, 0], [7, 8, 9]])
    np.testing.assert_array_equal(mask, [[1, 0, 0], [1, 1, 1]])


def test_a_damaged_artefact_says_how_to_build_again(tmp_path):
    manifest = write_shapes(tmp_path, "judge", dimension=2)
    assert shape_of(tmp_path, manifest, "dimension") == 2
    with pytest.raises(ArtefactError, match=r"damaged \(shapes\.max_length\): build again with: python x"):
        shape_of(tmp_path, manifest, "max_length")
    write_tokenizer(tmp_path, lambda tokenizer: None)
    assert open_tokenizer(tmp_path, manifest).encode("a c").ids == [2, 4, 6, 3]
    (tmp_path / "tokenizer.json").write_bytes(b"{}")
    with pytest.raises(ArtefactError, match=r"tokenizer\.json is damaged .*: build again with: python x"):
        open_tokenizer(tmp_path, manifest)
