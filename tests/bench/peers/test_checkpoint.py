import pytest

from trimodal.bench.peers.checkpoint import find_checkpoint
from trimodal.errors import OperatorError
from trimodal.manifest import Manifest, checkpoint_sha256


def write(directory, content="{}"):
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(content)
    return directory


def manifest(source, sha="0"):
    return Manifest(
        task="llm", runtime="x", runtime_version="x", precision="int8", source=source, source_sha256=sha,
        command="x",
    )  # fmt: skip


@pytest.mark.parametrize("place", ["built", "work/artefacts", "data/build/demo"])
def test_a_checkpoint_is_found_by_the_name_in_the_manifest(tmp_path, monkeypatch, place):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr("trimodal.bench.peers.checkpoint.data_directory", lambda: tmp_path / "data")
    source = write(tmp_path / place / "small")
    found = find_checkpoint(manifest("small", checkpoint_sha256(source)), tmp_path / "built" / "int8", None)
    assert found == (source, True)


def test_the_one_given_comes_first_and_others_than_the_artefacts_are_told(tmp_path):
    write(tmp_path / "small")
    other = write(tmp_path / "other", "[]")
    found = find_checkpoint(manifest("small"), tmp_path / "int8", other)
    assert found == (other, False)


def test_what_is_not_there_is_one_sentence(tmp_path):
    with pytest.raises(OperatorError, match="was built from 'owner/name'.*--peer-checkpoint DIR"):
        find_checkpoint(manifest("owner/name"), tmp_path / "int8", None)
    with pytest.raises(OperatorError, match=r"--peer-checkpoint .*none: no checkpoint is there"):
        find_checkpoint(manifest("owner/name"), tmp_path / "int8", tmp_path / "none")
