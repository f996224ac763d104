"""What TensorRT 11 no longer has."""

import tensorrt


def build(config: tensorrt.IBuilderConfig) -> None:
    config.set_flag(tensorrt.BuilderFlag.FP16)  # type: ignore[attr-defined]


class Calibrator(tensorrt.IInt8Calibrator):  # type: ignore[name-defined,misc]
    pass
