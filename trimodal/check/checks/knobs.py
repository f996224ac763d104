"""Instances against cores and GPU memory, warm-up, and settings that give wrong answers or slow ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tritonclient.grpc import model_config_pb2

from trimodal.check.findings import Finding, Target
from trimodal.check.repository import Config
from trimodal.files import folder_size
from trimodal.repository import unfit_metric_tags

_GROUP = model_config_pb2.ModelInstanceGroup
# They prepare kernels and memory for a shape when it first comes.
_PREPARE_LATE = ("onnxruntime", "pytorch", "tensorflow", "tensorrt")


def check_knobs(config: Config, target: Target) -> Iterator[Finding]:
    message = config.message
    cuda = message.optimization.cuda
    if config.backend == "tensorrt" and cuda.graphs and cuda.output_copy_stream:
        # instance_state.cc (26.07): 3 event sets with a graph each rotate over 2 sets of buffers.
        sentence = "half of the batches are computed from, and answered with, buffers of earlier ones"
        yield config.finding("TRI083", sentence, "optimization", "cuda", "output_copy_stream")
    on_gpu = any(group.kind == _GROUP.KIND_GPU for group in message.instance_group)
    captured = config.backend == "tensorrt" and cuda.graphs  # each size runs once when its graph is captured
    if config.backend in _PREPARE_LATE and on_gpu and not message.model_warmup and not captured:
        sentence = f"{config.model} runs on {config.backend} without model_warmup"
        yield config.finding("TRI082", sentence, "instance_group")
    is_for_cpu = config.file.parts[-2:] == ("configs", "cpu.pbtxt")
    for index, group in enumerate(message.instance_group):
        if is_for_cpu and group.kind == _GROUP.KIND_GPU:
            yield config.finding("TRI085", "an instance group is KIND_GPU", "instance_group", index, "kind")
        if group.HasField("rate_limiter"):
            yield config.finding("TRI084", "rate_limiter is set", "instance_group", index, "rate_limiter")
    if message.response_cache.enable:
        yield config.finding("TRI086", "response_cache is set", "response_cache")
    for key in unfit_metric_tags(message):
        at = config.parameter_path(key, "metric_tags")
        yield config.finding("TRI087", f"the key {key} is no name of a label", *at)
    if target.cores:
        for index, group in enumerate(message.instance_group):
            # Each computes on a core, or waits on one for a GPU that it opened by itself.
            if group.kind == _GROUP.KIND_CPU and group.count > target.cores:
                sentence = f"{group.count} instances, {target.cores} cores"
                yield config.finding("TRI080", sentence, "instance_group", index, "count")


def check_delays(config: Config, models: Mapping[str, Config], target: Target) -> Iterator[Finding]:
    """What the steps of an ensemble may wait for company, one after the other."""
    steps = config.message.ensemble_scheduling.step
    if not target.slo_ms or not steps:
        return
    waits = {
        step.model_name: models[step.model_name].message.dynamic_batching.max_queue_delay_microseconds / 1000
        for step in steps
        if step.model_name in models
    }
    total = sum(waits.values())
    if total >= target.slo_ms and all(wait < target.slo_ms for wait in waits.values()):
        added = " + ".join(f"{name} {wait:g}" for name, wait in waits.items() if wait)
        sentence = f"the steps may wait for {total:g} ms ({added}), the SLO is {target.slo_ms:g} ms"
        yield config.finding("TRI034", sentence, "ensemble_scheduling")


def check_memory(models: Mapping[str, Config], target: Target) -> Iterator[Finding]:
    """Adds up the model files on GPU 0. A lower bound: workspaces and caches come on top."""
    if not target.gpu_memory:
        return
    sizes = {name: size for name, config in models.items() if (size := _bytes_on_gpu(config))}
    total = sum(sizes.values())
    if total > target.gpu_memory:
        largest = max(sizes, key=lambda name: sizes[name])
        added = ", ".join(f"{name} {size / 2**30:.1f}" for name, size in sorted(sizes.items()))
        sentence = f"{total / 2**30:.1f} GiB on one GPU ({added}), it has {target.gpu_memory / 2**30:g} GiB"
        yield models[largest].finding("TRI081", sentence, "instance_group")


def _bytes_on_gpu(config: Config) -> int:
    groups = [
        group
        for group in config.message.instance_group
        if group.kind == _GROUP.KIND_GPU and (not group.gpus or 0 in group.gpus)
    ]
    if not groups:
        return 0
    count = sum(max(1, group.count) for group in groups)
    # TensorRT's backend loads a plan once a GPU; instances of the others have a copy of the weights each.
    copies = 1 if config.backend == "tensorrt" else count
    return copies * sum(folder_size(folder) for folder in config.loaded.values())
