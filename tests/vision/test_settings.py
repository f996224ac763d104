import pytest
from google.protobuf import text_format

from tests.project.test_profiles import REPOSITORY
from trimodal.errors import SettingsError
from trimodal.host import host_cpus
from trimodal.settings import parse_parameters
from trimodal.vision.settings import PreprocessSettings, RankSettings, VisionSettings


def test_the_files_in_the_repository_are_accepted():
    from tritonclient.grpc import model_config_pb2

    for file, cls in {
        "vision/configs/cpu.pbtxt": VisionSettings,
        "vision/configs/cuda.pbtxt": VisionSettings,
        "vision_preprocess/config.pbtxt": PreprocessSettings,
        "vision_rank/config.pbtxt": RankSettings,
    }.items():
        config = text_format.Parse((REPOSITORY / file).read_text(), model_config_pb2.ModelConfig())
        parameters = {key: value.string_value for key, value in config.parameters.items()}
        assert set(parameters) == set(cls.model_fields), f"{file} does not show every parameter"
        parse_parameters(cls, parameters, source=file)


def test_warm_up_sizes_are_a_list_of_numbers():
    settings = parse_parameters(
        VisionSettings, {"artefact": "x", "warm_up_batch_sizes": "1, 4,8"}, source="f"
    )
    assert settings.warm_up_batch_sizes == (1, 4, 8)
    assert settings.threads == host_cpus()


def test_a_warm_up_size_that_is_none_is_named():
    given = {"artefact": "x", "warm_up_batch_sizes": "1,x"}
    with pytest.raises(SettingsError, match=r"f: parameter 'warm_up_batch_sizes\.1' = 'x'"):
        parse_parameters(VisionSettings, given, source="f")
