"""Converts a torch model to OpenVINO IR and compresses its weights, with optimum-intel and nncf."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from steps.artefact import reason
from steps.llm.checkpoint import Checkpoint
from steps.llm.groups import GROUP, compress_groups
from steps.llm.projections import join_projections

from trimodal.errors import ArtefactError
from trimodal.paths import home

MODEL = "openvino_model.xml"
TOKENIZERS = "openvino_tokenizer", "openvino_detokenizer"
CONFIG_FILES = ("config.json", "generation_config.json")
LARGEST_GROUP, SMALLEST_GROUP = 64, 16
SAMPLE_TOKENS = 256


def import_converters() -> None:
    """Imports the heavy packages, under the caller's progress display."""
    os.environ.setdefault("HOME", str(home()))  # without one the import of nncf (3.4) fails
    import nncf  # noqa: F401
    import openvino_genai  # noqa: F401
    import optimum.exporters.openvino  # noqa: F401
    import rich

    # Its import sets INFO. Its own set_log_level also sets every handler on its logger, also others'.
    logging.getLogger("nncf").setLevel(logging.ERROR)
    rich.get_console().quiet = True  # nncf draws its own bars there; ours has a console of its own.


def export(checkpoint: Checkpoint, directory: Path) -> None:
    """Writes the stateful FP32 IR, its configuration and, where it can be converted, the tokenizer."""
    import openvino
    import openvino_tokenizers
    from optimum.exporters.openvino import export_from_model
    from optimum.intel import OVConfig

    try:
        export_from_model(
            checkpoint.model,
            directory,
            task="text-generation-with-past",
            stateful=True,
            ov_config=OVConfig(dtype="fp32"),
        )
    except Exception as error:  # An architecture that the converter does not know, out of memory, …
        name = checkpoint.directory.name
        raise ArtefactError(f"{name} cannot be exported to OpenVINO: {reason(error)}") from error
    try:
        parts = openvino_tokenizers.convert_tokenizer(checkpoint.tokenizer, with_detokenizer=True)
    except Exception:  # The server encodes and decodes with tokenizer.json, and the pipeline opens without.
        return
    for part, name in zip(parts, TOKENIZERS, strict=True):
        openvino.save_model(part, directory / f"{name}.xml", compress_to_fp16=False)


def group_size(checkpoint: Checkpoint) -> int:
    """The largest power of two up to 64 that divides every row of a weight matrix, else −1: whole rows."""
    shapes = checkpoint.shapes()
    rows = [
        shapes["hidden_size"],
        shapes["num_attention_heads"] * shapes["head_dim"],
        getattr(checkpoint.config, "intermediate_size", None) or 4 * shapes["hidden_size"],
    ]
    size = LARGEST_GROUP
    while any(row % size for row in rows):
        size //= 2
    return size if size >= SMALLEST_GROUP else -1


def compress(
    exported: Path,
    directory: Path,
    precision: str,
    int4: Mapping[str, Any],
    samples: list[list[int]],
    int8_group: int = GROUP,
) -> dict[str, Any]:
    """Writes the IR of `exported` with its weights compressed, and what stands beside it.

    Args:
        precision: fp32, fp16, int8 or int4.
        int4: `group_size`, weights that share a scale (−1: a whole row); `ratio`, share of the layers (the
            others get int8); `awq`, activation-aware scaling of the weights first.
        int8_group: weights of int8 that share a scale; 0: a row.
        samples: token ids of calibration texts; with any, scales of int4 are fitted to the activations.

    Returns:
        What was done, for the manifest.
    """
    import nncf
    import openvino

    model = openvino.Core().read_model(exported / MODEL)
    done: dict[str, Any] = {}
    if precision == "int8":
        mode = nncf.CompressWeightsMode.INT8_ASYM
        done = {"mode": mode.value}
        if int8_group:
            of_8, of_4 = compress_groups(model, int8_group)
            done = {"mode": "int8_sym", "group_size": int8_group, "matrices": of_8, "kept_at_4_bits": of_4}
        model = nncf.compress_weights(model, mode=mode)  # all, or what is left
    elif precision == "int4":
        mode = nncf.CompressWeightsMode.INT4_SYM
        names = {name for port in model.inputs for name in port.get_names()}
        done = {"mode": mode.value, **int4, "scale_estimation": bool(samples)}
        model = nncf.compress_weights(
            model,
            mode=mode,
            group_size=int4["group_size"],
            ratio=int4["ratio"],
            awq=int4["awq"] or None,
            scale_estimation=bool(samples) or None,
            dataset=nncf.Dataset([feeds(ids, names) for ids in samples]) if samples else None,
            subset_size=max(len(samples), 1),
        )
    done["joined_products"] = join_projections(model)
    openvino.save_model(model, directory / MODEL, compress_to_fp16=precision == "fp16")
    for path in exported.iterdir():
        if path.stem in TOKENIZERS or path.name in CONFIG_FILES:
            shutil.copyfile(path, directory / path.name)
    return done


def feeds(ids: list[int], names: set[str]) -> dict[str, Any]:
    """One text, [1, len(ids)], as the inputs of the stateful model, those of `names` that it has."""
    length = len(ids)
    inputs = {
        "input_ids": np.array([ids], np.int64),
        "attention_mask": np.ones((1, length), np.int64),
        "position_ids": np.arange(length, dtype=np.int64)[None],
        "beam_idx": np.zeros(1, np.int32),
    }
    return {name: feed for name, feed in inputs.items() if name in names}
