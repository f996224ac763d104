"""What TensorRT 10 still has and 11 no longer has."""

import tensorrt


def build(config: tensorrt.IBuilderConfig) -> None:
    config.set_flag(tensorrt.BuilderFlag.FP16)


class Calibrator(tensorrt.IInt8Calibrator):
    pass
