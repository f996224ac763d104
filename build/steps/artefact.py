"""Says where an artefact goes, what it was made of, whether it agrees enough to be put in place."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from trimodal.build_support import build_command, report, resolve_checkpoint
from trimodal.errors import ArtefactError
from trimodal.manifest import MANIFEST, Manifest, check_room, checkpoint_sha256
from trimodal.paths import artefact_root, expanded

Item = TypeVar("Item")
# Relative error of all outputs, √Σ(a − b)² / √Σb². INT8 and FP8 are judged by the answers they give.
MAX_ERROR = {"fp32": 1e-3, "fp16": 1e-2}
# Bytes of a weight, at least, as an artefact of that precision has it; of others one.
WEIGHT_BYTES = {"fp32": 4.0, "float32": 4.0, "fp16": 2.0, "float16": 2.0, "int4": 0.5}


def read_json(file: Path) -> dict[str, Any]:
    """A file's fields; none where there is no such file. Raises: ArtefactError: it is no JSON object."""
    if not file.is_file():
        return {}
    try:
        found = json.loads(file.read_bytes())  # Bytes may begin with a byte order mark.
    except (OSError, ValueError) as error:
        raise ArtefactError(f"{file} is no readable JSON object ({reason(error)})") from None
    if not isinstance(found, dict):
        raise ArtefactError(f"{file} is no readable JSON object")
    return found


def reason(error: Exception) -> str:
    """The first line of what a library says, cut."""
    return (str(error).strip().split("\n")[0] or type(error).__name__)[:200]


def target(model: str, precision: str, name: str, out: str, source: Path | None = None) -> Path:
    """The artefact's directory: `out`, else `name` under the model's artefacts; {precision} is filled in.

    `source`: a directory that may be replaced by what is made of it.

    Raises: ArtefactError: no name of a directory, or one that holds something else.
    """
    if out:
        place = Path(out.replace("{precision}", precision)).resolve()
    elif Path(name).name != name or name in ("", ".."):
        raise ArtefactError(f"--name {name!r} is not a plain directory name: use --out for a path")
    else:
        place = artefact_root(model) / name.replace("{precision}", precision)
    if source is None or place.resolve() != source.resolve():
        refuse_others(place, MANIFEST)
    return place


def refuse_others(place: Path, known_by: str) -> None:
    """Raises: ArtefactError: a directory with files, none of them `known_by`: a build would remove them."""
    if place.is_dir() and any(place.iterdir()) and not (place / known_by).is_file():
        raise ArtefactError(
            f"{place} holds files and no {known_by}, and a build would remove them: name another directory, "
            "or move them away"
        )


def targets(
    model: str, precisions: Iterable[str], name: str, out: str, source: Path | None = None
) -> dict[str, Path]:
    """A directory for each precision, as `target`. Raises: ArtefactError where two would share one."""
    found = {each: target(model, each, name, out, source) for each in precisions}
    if len(set(found.values())) < len(found):
        raise ArtefactError("each precision needs its own directory: put {precision} into --name or --out")
    return found


def check_weights_fit(model: Any, places: Mapping[str, Path], beside: float = 0.0) -> None:
    """As `check_fits`, for a torch model."""
    check_fits(count_weights(model), places, beside)


def count_weights(model: Any) -> int:
    return sum(each.numel() for each in model.parameters())


def check_fits(weights: int, places: Mapping[str, Path], beside: float = 0.0) -> None:
    """Raises: ArtefactError: so many weights alone have no room where the artefacts are to be.

    Args:
        places: precision → directory.
        beside: bytes of a weight that are written meanwhile, as by an export.
    """
    folder = next(iter(places.values())).parent
    sizes = [WEIGHT_BYTES.get(each, 1.0) for each, place in places.items() if place.parent == folder]
    check_room(folder, weights * (beside + sum(sizes)))


def resolve_converted(source: str, suffix: str, convert: Callable[[Path], Path]) -> Path:
    """The checkpoint's directory; converts such a file, also the only one of a directory without config.json.

    Raises:
        ArtefactError: there is none, or it cannot be read.
    """
    file = expanded(Path(source), "the checkpoint", ArtefactError)
    if file.suffix == suffix and not file.is_dir():
        if not file.is_file():
            raise ArtefactError(f"no file {source}")
        return convert(file)
    directory = resolve_checkpoint(source)
    files = sorted(directory.glob(f"*{suffix}"))
    if not files or (directory / "config.json").is_file():
        return directory
    if len(files) > 1:
        names = ", ".join(file.name for file in files)
        raise ArtefactError(f"{source} has {len(files)} {suffix} files: name one of {names}")
    return convert(files[0])


def source_name(source: str) -> str:
    """A hub id as the user named it, or the directory's or the file's own name.

    Not the name of what the file was converted to: `trimodal build all --missing` knows the user's alone.
    """
    if (file := Path(source)).is_file():
        return file.name
    return file.resolve().name if file.is_dir() else source


def origin(directory: Path, source: str, script: str) -> dict[str, str]:
    """What a manifest says of the checkpoint in `directory` and of the command that builds from it."""
    return {
        "source": source_name(source),
        "source_sha256": checkpoint_sha256(directory),
        "command": build_command(script),
    }


def tell_check(
    manifest: Manifest, name: str, asked: float | None, usual: float, against: str = "torch"
) -> None:
    """Prints the figures, with the least agreement: `asked`, else 0 of random weights, else the usual one."""
    limit = asked if asked is not None else 0.0 if manifest.extra.get("random_weights") else usual
    manifest.check["min_agreement"] = limit
    report(f"{name}: {manifest.source} against {against}", manifest.check)


def refuse_below(manifest: Manifest, against: str = "torch", what: str = "token") -> None:
    """Raises: ArtefactError when fewer tokens, or words, than `tell_check` allowed are the reference's."""
    agreement, limit = manifest.check[f"{what}_agreement"], manifest.check["min_agreement"]
    if agreement < limit:
        raise ArtefactError(
            f"{manifest.precision} agrees with {against} on {agreement:.1%} of the {what}s, less than "
            f"--min-agreement {limit:g}: nothing was replaced"
        )


def refuse_perplexity(manifest: Manifest, most: float) -> None:
    """Refuses a graph that is surprised by a text so many times more than torch, or beyond numbers.

    Random weights are held to the latter alone: a manifest's JSON has no other numbers.

    Raises:
        ArtefactError: so it is.
    """
    figures = manifest.check
    told = all(math.isfinite(figures[f"perplexity_{of}"]) for of in ("torch", "built", "ratio"))
    if told and (figures["perplexity_ratio"] <= most or manifest.extra.get("random_weights")):
        return
    steps = "--awq, --ratio 0.8 or --calibration FILE, or " if manifest.precision == "int4" else ""
    raise ArtefactError(
        f"{manifest.precision} raises the perplexity from {figures['perplexity_torch']:.3g} to "
        f"{figures['perplexity_built']:.3g}, {figures['perplexity_ratio']:.2f} times, more than "
        f"--max-perplexity-ratio {most:g}: nothing was replaced; try {steps}a higher precision"
    )


def refuse_errors(name: str, precision: str, figures: dict[str, Any], keys: Iterable[str]) -> None:
    """Raises: ArtefactError where one of these figures is above the precision's MAX_ERROR."""
    limit = MAX_ERROR.get(precision, math.inf)
    for key in keys:
        if not figures.get(key, 0.0) <= limit:  # Not a number is out of bounds, too.
            raise ArtefactError(f"{name} not written: {key} {figures[key]:.2g} is above {limit:g}")


def tell_built(place: Path) -> None:
    size = sum(path.stat().st_size for path in place.iterdir()) / 1e6
    report("In place", {"artefact": place, "size": f"{size:.1f} MB"})


def evenly(items: list[Item], most: int) -> list[Item]:
    """At most `most` of `items`, spread over the whole."""
    return [items[index * len(items) // most] for index in range(most)] if len(items) > most else items
