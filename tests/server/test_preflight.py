from importlib.metadata import version

import pytest

from trimodal.errors import ServerError
from trimodal.server.preflight import SHM_PER_INSTANCE, check_numpy, check_shared_memory
from trimodal.server.repository import read_model


@pytest.fixture
def model(tmp_path):
    def make(count):
        (tmp_path / "m").mkdir(exist_ok=True)
        text = f'name: "m" backend: "python" instance_group [{{ count: {count} }}]'
        (tmp_path / "m" / "config.pbtxt").write_text(text)
        return read_model(tmp_path, "m", "cpu")

    return make


def test_enough_shared_memory(model, tmp_path):
    check_shared_memory([model(1)], tmp_path)
    check_shared_memory([], tmp_path)


def test_too_little_shared_memory_says_how_much_and_how_to_enlarge(model, tmp_path):
    count = 2**30  # more than any disk holds
    needed = count * SHM_PER_INSTANCE >> 20
    with pytest.raises(ServerError, match=rf"MiB free of .* need {needed} MiB: enlarge it .*--shm-size"):
        check_shared_memory([model(count)], tmp_path)


def test_no_shared_memory_at_all(model, tmp_path):
    with pytest.raises(ServerError, match="is missing"):
        check_shared_memory([model(1)], tmp_path / "shm")


def test_numpy_two_is_refused(tmp_path, monkeypatch):
    check_numpy()
    metadata = tmp_path / "numpy-2.1.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 2.1.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert version("numpy") == "2.1.0"
    with pytest.raises(ServerError, match=r"numpy 2\.1\.0 is installed.*pip install 'numpy<2'"):
        check_numpy()
