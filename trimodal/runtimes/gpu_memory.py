"""Says which share of a GPU's memory an engine may take beside others, by what the driver says is free."""

from __future__ import annotations

from trimodal.errors import OperatorError
from trimodal.runtimes.gpu_device import visible_gpus

# Bytes that stay free: the CUDA context of the engine's own process, which its share does not count, and
# what the others still take when their largest batches come (estimated: nothing of this was measured).
RESERVE = 3 << 29
LEAST_SHARE = 0.05  # below this not even the smallest checkpoints have room


def free_share(count: int) -> float:
    """Share of the whole memory, from 0 to 1, that is free on each of the first `count` GPUs less a reserve.

    Ask when all other models are loaded. vLLM takes its share of CUDA's total, some 0.6 GiB less than the
    driver's: it gets that much less than it could, never more than is free.

    Raises:
        OperatorError: there is hardly anything left; says on which GPU. Or no GPU can be seen.
    """
    gpus = visible_gpus()[:count]
    if not gpus:
        raise OperatorError("no GPU can be seen")
    shares = {gpu.index: (gpu.free - RESERVE) / gpu.memory for gpu in gpus}
    index, share = min(shares.items(), key=lambda item: item[1])
    if share < LEAST_SHARE:
        gpu = next(gpu for gpu in gpus if gpu.index == index)
        least = RESERVE + LEAST_SHARE * gpu.memory
        raise OperatorError(
            f"GPU {index} has {gpu.free / 2**30:.1f} of {gpu.memory / 2**30:.1f} GiB free, less than the "
            f"{least / 2**30:.1f} that a language model begins with: serve fewer models on it, "
            "see with nvidia-smi who else holds memory, or set gpu_memory_utilization"
        )
    return int(share * 1000) / 1000
