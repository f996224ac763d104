import resource
from contextlib import nullcontext
from importlib.metadata import version
from unittest.mock import Mock

import pytest

from tests.server.artefacts import H200, PLAN, add_model, build, plan_fields, python_model
from trimodal.errors import ServerError, SettingsError
from trimodal.repository import read_model
from trimodal.runtimes import gpu_libraries
from trimodal.server import preflight
from trimodal.server.installation import Triton
from trimodal.server.options import ServerOptions
from trimodal.server.preflight import (
    SHM_PER_INSTANCE,
    check_backends,
    check_config,
    check_gpus,
    check_limits,
    check_models,
    check_numpy,
    check_shared_memory,
)


@pytest.fixture
def model(tmp_path):
    def make(count):
        (tmp_path / "m").mkdir(exist_ok=True)
        text = f'name: "m" backend: "python" instance_group [{{ count: {count} }}]'
        (tmp_path / "m" / "config.pbtxt").write_text(text)
        return read_model(tmp_path, "m", "cpu")

    return make


def test_shared_memory_must_be_there_and_large_enough(model, tmp_path):
    check_shared_memory([model(1)], tmp_path)
    check_shared_memory([], tmp_path)
    count = 2**30  # more than any disk holds
    needed = count * SHM_PER_INSTANCE >> 20
    with pytest.raises(ServerError, match=rf"MiB free of .* need {needed} MiB: enlarge it .*--shm-size"):
        check_shared_memory([model(count)], tmp_path)
    with pytest.raises(ServerError, match="is missing"):
        check_shared_memory([model(1)], tmp_path / "shm")


@pytest.mark.parametrize("name", ["with blank", "with'quote", "a;b", "$x"])
def test_a_temporary_folder_that_a_shell_would_take_apart(tmp_path, name):
    for each in ("tmp_x-1.0", name):
        (tmp_path / each).mkdir()
    preflight.check_temporary(tmp_path / "tmp_x-1.0")
    with pytest.raises(ServerError, match="set TMPDIR to a path of letters"):
        preflight.check_temporary(tmp_path / name)


def test_a_temporary_folder_on_a_full_disk(tmp_path, monkeypatch):
    """Each model failed with "marshal data too short"."""
    monkeypatch.setattr("trimodal.server.preflight.free_room", lambda place: 16 << 10)
    with pytest.raises(ServerError, match="the disk of the temporary folder .* is full.*TMPDIR"):
        preflight.check_temporary(tmp_path)


def test_a_name_that_a_shell_would_take_apart(tmp_path):
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b" / "config.pbtxt").write_text('name: "a b" backend: "python"')
    with pytest.raises(ServerError, match=r"model 'a b': its name may hold"):
        preflight.check_models(Mock(), [read_model(tmp_path, "a b", "cpu")])


def test_the_health_page_is_where_clients_look_for_it():
    for host, own in (("127.0.0.1", ""), ("127.0.0.1", "0.0.0.0"), ("0.0.0.0", ""), ("::1", "::")):
        assert preflight.check_health_host(ServerOptions(host=host, health_host=own)) == own or host
    with pytest.raises(ServerError, match="--health-host 10.0.0.7: give 0.0.0.0 or ::"):
        preflight.check_health_host(ServerOptions(health_host="10.0.0.7"))


def test_numpy_two_is_refused(tmp_path, monkeypatch):
    check_numpy()
    metadata = tmp_path / "numpy-2.1.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 2.1.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert version("numpy") == "2.1.0"
    with pytest.raises(ServerError, match=r"numpy 2\.1\.0 is installed.*pip install 'numpy<2'"):
        check_numpy()


@pytest.fixture
def on_gpu(tmp_path):
    """A model on a GPU: what it opens fits an H200 and TensorRT 10.14."""
    version = add_model(tmp_path, PLAN)
    build(version / "tensorrt-fp16", "vision", "tensorrt", "model.plan", **plan_fields())
    return read_model(tmp_path, "vision_classify", "tensorrt")


def test_no_driver_is_asked_when_no_model_wants_a_gpu(model, monkeypatch):
    monkeypatch.setattr(preflight, "visible_gpus", lambda: pytest.fail("asked"))
    assert check_gpus([model(1)]) == []


def test_a_model_that_wants_a_gpu_where_there_is_none(on_gpu, monkeypatch):
    def no_driver():
        raise ServerError("no NVIDIA driver answers (x): install one")

    monkeypatch.setattr(preflight, "visible_gpus", no_driver)
    with pytest.raises(ServerError, match="^vision_classify wants a GPU, but no NVIDIA driver answers"):
        check_gpus([on_gpu])
    monkeypatch.setattr(preflight, "visible_gpus", list)
    with pytest.raises(ServerError, match="the driver has none; --profile cpu"):
        check_gpus([on_gpu])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    with pytest.raises(ServerError, match="CUDA_VISIBLE_DEVICES=-1 hides them all"):
        check_gpus([on_gpu])


def test_a_backend_that_triton_lacks(model, on_gpu, tmp_path):
    triton = Triton(tmp_path / "triton")
    (triton.root / "backends" / "python").mkdir(parents=True)
    check_backends(triton, [model(1)])
    with pytest.raises(ServerError, match="vision_classify needs Triton's tensorrt backend, .*cuda"):
        check_backends(triton, [model(1), on_gpu])


def test_graphs_with_a_copy_stream_are_refused_before_a_client_gets_another_one_s_answer(tmp_path):
    def configured(graphs, copy_stream):
        (tmp_path / "vision_classify").mkdir(exist_ok=True)
        text = PLAN.replace("graphs: true", f"graphs: {graphs} output_copy_stream: {copy_stream}")
        (tmp_path / "vision_classify" / "config.pbtxt").write_text(text)
        return read_model(tmp_path, "vision_classify", "tensorrt")

    check_config(configured("true", "false"))
    check_config(configured("false", "true"))
    combined = configured("true", "true")
    sentence = (
        r"^vision_classify/config\.pbtxt: optimization\.cuda\.output_copy_stream .*results of other clients"
    )
    with pytest.raises(SettingsError, match=sentence):
        check_config(combined)
    with pytest.raises(SettingsError, match=sentence):
        check_models(Triton(tmp_path / "triton"), [combined])


@pytest.mark.parametrize("key", ["my-team", "__reserved", "_team", "a.b", "größe"])
def test_a_metric_tag_on_which_the_server_would_abort_is_refused(key, tmp_path):
    (tmp_path / "m").mkdir()

    def tagged(key):
        text = f'backend: "python" metric_tags {{ key: "{key}" value: "a" }}'
        (tmp_path / "m" / "config.pbtxt").write_text(text)
        return read_model(tmp_path, "m", "cpu")

    check_config(tagged("team_2"))
    with pytest.raises(SettingsError, match=rf"^m/config\.pbtxt: metric_tags has the key '{key}', on which"):
        check_config(tagged(key))


def test_models_are_checked_whole(on_gpu, tmp_path, monkeypatch):
    triton = Triton(tmp_path / "triton")
    (triton.root / "backends" / "tensorrt").mkdir(parents=True)
    monkeypatch.setattr(preflight, "visible_gpus", lambda: [H200])
    monkeypatch.setattr(gpu_libraries, "native_tensorrt", lambda: "10.14.1")
    check_models(triton, [on_gpu])
    monkeypatch.setattr(gpu_libraries, "native_tensorrt", lambda: "11.4.0")
    with pytest.raises(ServerError, match="model vision_classify: .* 10.14.1.48, here is 11.4.0: build"):
        check_models(triton, iter([on_gpu]))


def test_a_server_does_not_start_for_a_missing_engine(tmp_path, monkeypatch):
    """Nothing is started: it is said before, with the temporary copy of the repository removed."""
    from trimodal.server.process import TritonServer

    monkeypatch.setenv("TRIMODAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    repository = tmp_path / "repository"
    add_model(repository, python_model("embedding", engine="onnxruntime", artefact="onnx-fp32"))
    (tmp_path / "engines").mkdir()
    options = ServerOptions.on_free_ports(repository=repository, engines=tmp_path / "engines")
    with pytest.raises(ServerError, match="^model embedding: there is no built engine embedding/1/onnx-fp32"):
        TritonServer(options).start()
    assert not list(tmp_path.glob("trimodal-server-*"))


@pytest.mark.parametrize(
    ("kind", "limits", "user", "told"),
    [
        (resource.RLIMIT_NOFILE, (64, 64), 0, "open files is 64, .* needs 128: set it by `ulimit -n 65536`"),
        (resource.RLIMIT_NOFILE, (64, 1024), 0, ""),  # the guard raises it
        (resource.RLIMIT_NPROC, (24, 24), 1000, "processes and threads is 24, .* needs 128: set it"),
        (resource.RLIMIT_NPROC, (24, 24), 0, ""),  # it is not for root
        (resource.RLIMIT_AS, (8 << 30, -1), 0, "addresses in KiB is 8388608, .*: set it by `ulimit -v unlim"),
        (resource.RLIMIT_AS, (32 << 30, -1), 0, ""),
        (resource.RLIMIT_FSIZE, (20 << 10, -1), 0, "a file's size in KiB is 20, .* needs 65536"),
        (resource.RLIMIT_CORE, (0, 0), 0, ""),
    ],
)
def test_limits_under_which_no_server_starts(monkeypatch, kind, limits, user, told):
    """With 64 files it wrote 1.5 GB of log in a minute and was waited for until --ready-timeout."""
    none = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda which: limits if which == kind else none)
    monkeypatch.setattr("os.geteuid", lambda: user)
    with pytest.raises(ServerError, match=told) if told else nullcontext():
        check_limits()
