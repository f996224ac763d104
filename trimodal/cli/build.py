"""`trimodal build …`: checkpoints → engines, by the scripts of build/, which a wheel brings along.

trimodal build vision path/or/hub-id --precision int8
trimodal build all --recipe small
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from trimodal.paths import ENGINES_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Part(NamedTuple):
    """One engine of a recipe: its checkpoint, options of its script, and settings that serve it."""

    source: str
    options: tuple[str, ...]
    settings: tuple[str, ...] = ()


# Task → endings of its scripts' names; the first is for processors and the default.
RUNTIMES = {
    "llm": ("openvino", "place", "tensorrt_llm"),
    "vision": ("onnx", "tensorrt"),
    "speech": ("ctranslate2", "onnx", "tensorrt"),
    "embedding": ("onnx",),
}
# Ungated checkpoints that a laptop serves; what the shipped configs do not name already is in `settings`.
RECIPES: dict[str, dict[str, Part]] = {
    "small": {
        "llm": Part("Qwen/Qwen2.5-0.5B-Instruct", ("--precision", "int4"), ("llm.artefact=openvino-int4",)),
        "vision": Part(
            "microsoft/resnet-50",
            ("--precision", "fp32"),  # INT8 needs images
            (
                "vision_classify.artefact=onnx-fp32",
                "vision_preprocess.classifier=../../vision_classify/1/onnx-fp32",
                "vision_rank.classifier=../../vision_classify/1/onnx-fp32",
            ),
        ),
        "speech": Part("openai/whisper-base", ("--precision", "int8")),
        "embedding": Part("sentence-transformers/all-MiniLM-L6-v2", ("--precision", "fp32")),
    },
}
# What the scripts for processors import, and how it is installed.
NEEDS = {
    "llm_openvino": ("torch", "transformers", "nncf", "openvino_genai", "optimum"),
    "vision_onnx": ("torch", "onnx", "onnxscript", "onnxruntime"),
    "speech_ctranslate2": ("torch", "transformers", "ctranslate2"),
    "speech_onnx": ("torch", "transformers", "onnx", "onnxruntime"),
    "embedding_onnx": ("torch", "transformers", "onnx", "onnxruntime"),
}
INSTALL = "pip install 'trimodal[cpu,build]'"
# Its own requirements would bring a torchvision that does not fit the torch of the extra.
INSTALL_OPTIMUM = "pip install --no-deps optimum==2.3.0 optimum-intel==2.2.0"

Checkpoint = Annotated[str | None, typer.Option(help="Other checkpoint: directory or hub id.")]

build = typer.Typer(
    help="Build engines from checkpoints: directories or ids of the Hugging Face hub.", no_args_is_help=True
)


def _add_command(task: str, what: str) -> None:
    known = RUNTIMES[task]

    def command(
        context: typer.Context,
        runtime: str = typer.Option(known[0], help=f"Of {', '.join(known)}."),
        engines: Path | None = typer.Option(
            None, envvar=ENGINES_VARIABLE, help="Where engines are put; default: into the repository."
        ),
    ) -> None:
        _run(task, runtime, context.args, engines)

    # What this command does not know is for the script.
    settings = {"allow_extra_args": True, "ignore_unknown_options": True}
    told = f"Build {what}. Other arguments: `trimodal build {task} -- --help` lists them."
    build.command(task, help=told, context_settings=settings)(command)


_add_command("llm", "a causal language model")
_add_command("vision", "an image classifier")
_add_command("speech", "a Whisper")
_add_command("embedding", "a sentence embedder")


def _run(task: str, runtime: str, arguments: Sequence[str], engines: Path | None) -> None:
    from trimodal.build_support import operator_errors

    if runtime not in RUNTIMES[task]:
        raise typer.BadParameter(f"--runtime {runtime}: known are {', '.join(RUNTIMES[task])}")
    with operator_errors():
        code = run_script(f"{task}_{runtime}", arguments, engines)
    raise typer.Exit(code)


@build.command("all")
def build_all(
    recipe: str = typer.Option("small", help=f"One of {', '.join(RECIPES)}."),
    llm: Checkpoint = None,
    vision: Checkpoint = None,
    speech: Checkpoint = None,
    embedding: Checkpoint = None,
    engines: Path = typer.Option(Path("engines"), help="Where engines are put."),
) -> None:
    """Build an engine for every task from public checkpoints, and say how they are served."""
    import shlex

    from trimodal.build_support import operator_errors

    if recipe not in RECIPES:
        raise typer.BadParameter(f"--recipe {recipe}: known are {', '.join(RECIPES)}")
    parts = RECIPES[recipe]
    own = {"llm": llm, "vision": vision, "speech": speech, "embedding": embedding}
    sources = {task: own[task] or part.source for task, part in parts.items()}
    with operator_errors():
        check_installed([f"{task}_{RUNTIMES[task][0]}" for task in parts])
        fetch(sources)
        for task, part in parts.items():
            arguments = [sources[task], *part.options]
            if code := run_script(f"{task}_{RUNTIMES[task][0]}", arguments, engines):
                raise typer.Exit(code)
    changes = [f"--set {setting}" for part in parts.values() for setting in part.settings]
    typer.echo("built; serve them with:")
    typer.echo(f"  trimodal serve --engines {shlex.quote(str(engines))} {' '.join(changes)}")


def check_installed(scripts: Sequence[str]) -> None:
    """Raises: ArtefactError naming what these scripts import and lack, and how it is installed."""
    from importlib.util import find_spec

    from trimodal.errors import ArtefactError

    wanted = dict.fromkeys(name for script in scripts for name in NEEDS.get(script, ()))
    if missing := [name for name in wanted if find_spec(name) is None]:
        steps = [INSTALL] if missing != ["optimum"] else []
        steps += [INSTALL_OPTIMUM] if "optimum" in missing else []
        raise ArtefactError(f"not installed: {', '.join(missing)}; {' && '.join(steps)}")


def fetch(sources: Mapping[str, str]) -> None:
    """Gets every checkpoint before the first build, which takes minutes. Raises: ArtefactError."""
    from trimodal.build_support import resolve_checkpoint
    from trimodal.errors import ArtefactError

    for task, source in sources.items():
        try:
            resolve_checkpoint(source)
        except ArtefactError as error:
            raise ArtefactError(f"{task}: {error}: trimodal build all --{task} DIRECTORY") from None


def run_script(name: str, arguments: Sequence[str], engines: Path | None) -> int:
    """Runs build/<name>.py with this interpreter; its exit code. Raises: ArtefactError (not installed)."""
    import os
    import subprocess
    import sys

    from trimodal.paths import PACKAGE, data_directory

    check_installed([name])
    environment = dict(os.environ)
    if engines:
        environment[ENGINES_VARIABLE] = str(engines)
    # The scripts import this very package, also where it runs from a source tree that is not installed.
    paths = [str(PACKAGE.parent), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    script = data_directory() / "build" / f"{name}.py"
    return subprocess.run([sys.executable, str(script), *arguments], env=environment, check=False).returncode
