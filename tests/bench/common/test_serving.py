from trimodal.bench.common.serving import bench_options
from trimodal.paths import ENGINES_VARIABLE, default_repository
from trimodal.repository import select_models


def test_both_sides_read_the_changed_copy_and_it_goes_away(monkeypatch):
    monkeypatch.delenv(ENGINES_VARIABLE, raising=False)

    changes = {"embedding": {"max_bytes": "77"}}
    with bench_options(("embedding",), "cuda", changes) as options:
        assert options.repository != default_repository()
        model = select_models(options.repository, options.models, options.profile)["embedding"]
        assert (model.parameters["max_bytes"], model.parameters["device"]) == ("77", "cuda")
        assert set(options.ports.values()) == {0}
        assert options.changes == {}  # they are in the files
    assert not options.repository.exists()


def test_artefacts_of_a_volume_come_first(tmp_path, monkeypatch):
    monkeypatch.setenv(ENGINES_VARIABLE, str(tmp_path))
    (tmp_path / "embedding" / "onnx-x").mkdir(parents=True)
    with bench_options(("embedding",), "cpu", {}) as options:
        copy = options.repository / "embedding" / "1" / "onnx-x"
        assert copy.resolve() == tmp_path / "embedding" / "onnx-x"
