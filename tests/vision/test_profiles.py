"""The vision models' config.pbtxt files: what the pipeline's steps hand to each other fits together."""

from pathlib import Path

from google.protobuf import text_format

REPOSITORY = Path(__file__).parents[2] / "model_repository"


def config(file: str):
    from tritonclient.grpc import model_config_pb2

    return text_format.Parse((REPOSITORY / file).read_text(), model_config_pb2.ModelConfig())


def tensors(side) -> dict[str, tuple[int, tuple[int, ...]]]:
    return {tensor.name: (tensor.data_type, tuple(tensor.dims)) for tensor in side}


def test_each_step_takes_what_the_step_before_gives():
    for profile in ("config.pbtxt", "configs/cpu.pbtxt"):
        preprocess, classify, rank = (
            config(f"{name}/{profile}") for name in ("vision_preprocess", "vision_classify", "vision_rank")
        )
        vision = config("vision/config.pbtxt")
        assert tensors(vision.input) == tensors(preprocess.input)
        assert tensors(preprocess.output) == tensors(classify.input)
        assert tensors(classify.output) == tensors(rank.input)
        assert tensors(rank.output) == tensors(vision.output)
        # A request of the largest size must pass every step.
        sizes = {model.max_batch_size for model in (vision, preprocess, classify, rank)}
        assert sizes == {16}


def test_no_queue_policy_and_no_queue_bound_on_any_step():
    for file in REPOSITORY.glob("vision*/**/*.pbtxt"):
        batching = config(str(file.relative_to(REPOSITORY))).dynamic_batching
        assert not batching.HasField("default_queue_policy"), file
        assert not batching.priority_queue_policy, file
