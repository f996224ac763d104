"""`trimodal build …`: checkpoints → engines, by the scripts of build/, which a wheel brings along.

trimodal build vision path/or/hub-id --precision int8
trimodal build all                     # the starter set, from packages
trimodal build all --recipe small      # from the hub
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from trimodal.paths import ENGINES_VARIABLE, PACKAGES_VARIABLE, STARTER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Part(NamedTuple):
    """One checkpoint of a recipe, its artefacts, options of its script, and settings that serve it.

    `runtime` is the ending of the script's name, where it is not the task's first.
    """

    source: str
    artefacts: tuple[str, ...]
    options: tuple[str, ...]
    settings: tuple[str, ...] = ()
    runtime: str = ""


# Task → endings of its scripts' names; the first is for processors and the default.
RUNTIMES = {
    "llm": ("openvino", "place"),
    "vision": ("onnx", "tensorrt"),
    "speech": ("ctranslate2", "tensorrt"),
    "embedding": ("onnx",),
    "turn": ("onnx",),
}
TURN = Part(f"{STARTER}smart-turn-v3", ("onnx-int8",), ())  # of every recipe: a package brings it
# Ungated checkpoints that a laptop serves; what the shipped configs do not name already is in `settings`.
RECIPES: dict[str, dict[str, Part]] = {
    # Out of packages (build/starter.toml), no hub: what the shipped configs serve as they are.
    "starter": {
        "llm": Part(f"{STARTER}smollm2-135m-instruct", ("openvino-int8",), ("--precision", "int8")),
        "vision": Part(
            f"{STARTER}efficientnet-lite0",
            ("onnx-fp32", "onnx-int8"),
            ("--precision", "fp32", "--precision", "int8"),
        ),
        "speech": Part(f"{STARTER}whisper-base", ("ctranslate2-int8",), ("--precision", "int8")),
        "embedding": Part(f"{STARTER}minilm-l6-v2", ("onnx-fp32",), ("--precision", "fp32")),
        "turn": TURN,
    },
    "small": {
        "llm": Part(
            "Qwen/Qwen2.5-0.5B-Instruct",
            ("openvino-int4",),
            ("--precision", "int4"),
            ("llm.artefact=openvino-int4",),
        ),
        "vision": Part(
            "microsoft/resnet-50",
            ("onnx-fp32",),
            ("--precision", "fp32"),  # INT8 needs images
            ("vision.artefact=../../vision_classify/1/onnx-fp32",),
        ),
        "speech": Part("openai/whisper-base", ("ctranslate2-int8",), ("--precision", "int8")),
        "embedding": Part("sentence-transformers/all-MiniLM-L6-v2", ("onnx-fp32",), ("--precision", "fp32")),
        "turn": TURN,
    },
    # What profile cuda serves as it is. The checkpoint is copied: engines may lie on a volume of their own.
    "cuda": {
        "llm": Part("Qwen/Qwen2.5-0.5B-Instruct", ("checkpoint",), ("--copy",), runtime="place"),
        "vision": Part("microsoft/resnet-50", ("onnx-fp16",), ("--precision", "fp16")),
        "speech": Part("openai/whisper-base", ("ctranslate2-float16",), ("--precision", "float16")),
        "embedding": Part("sentence-transformers/all-MiniLM-L6-v2", ("onnx-fp16",), ("--precision", "fp16")),
        "turn": TURN,
    },
}
PROFILES = {"starter": "cpu", "small": "cpu", "cuda": "cuda"}
# Task → model, whose folder among the engines holds the artefact.
MODELS = {
    "llm": "llm",
    "vision": "vision_classify",
    "speech": "speech_recognize",
    "embedding": "embedding",
    "turn": "turn",
}
# Task → ending of a file that its scripts convert by themselves.
FILES = {"llm": ".gguf", "speech": ".pt"}
# What the scripts for processors import, and how it is installed.
NEEDS = {
    "llm_openvino": ("torch", "transformers", "nncf", "openvino_genai", "optimum"),
    "vision_onnx": ("torch", "onnx", "onnxscript", "onnxruntime"),
    "speech_ctranslate2": ("torch", "transformers", "ctranslate2"),
    "embedding_onnx": ("torch", "transformers", "onnx", "onnxruntime"),
    "turn_onnx": ("transformers", "onnx", "onnxruntime"),
}
INSTALL = "pip install 'trimodal[cpu,build]'"
# First where there is no GPU: plain torch brings gigabytes of CUDA packages along.
INSTALL_TORCH = "pip install torch==2.13.0+cpu --extra-index-url https://download.pytorch.org/whl/cpu"
NVIDIA_DRIVER = Path("/proc/driver/nvidia")
# Its own requirements would bring a torchvision that does not fit the torch of the extra.
INSTALL_OPTIMUM = "pip install --no-deps optimum==2.3.0 optimum-intel==2.2.0"


Checkpoint = Annotated[str | None, typer.Option(help="Other checkpoint, as its own command takes it.")]
Engines = Annotated[
    Path | None,
    typer.Option(envvar=ENGINES_VARIABLE, help="Where engines are put; default: into the repository."),
]

build = typer.Typer(
    help="Build engines from checkpoints: directories or ids of the Hugging Face hub.", no_args_is_help=True
)


def _add_command(task: str, what: str) -> None:
    known = RUNTIMES[task]

    def command(
        context: typer.Context,
        runtime: str = typer.Option(known[0], help=f"Of {', '.join(known)}."),
        engines: Engines = None,
    ) -> None:
        from trimodal.build_support import operator_errors

        if runtime not in known:
            raise typer.BadParameter(f"--runtime {runtime}: known are {', '.join(known)}")
        put_into(engines)
        with operator_errors():
            code = run_script(f"{task}_{runtime}", context.args)
        raise typer.Exit(code)

    # What this command does not know is for the script.
    settings = {"allow_extra_args": True, "ignore_unknown_options": True}
    description = f"Build {what}. Other arguments: `trimodal build {task} -- --help` lists them."
    build.command(task, help=description, context_settings=settings)(command)


_add_command("llm", "a causal language model")
_add_command("vision", "an image classifier")
_add_command("speech", "a Whisper")
_add_command("embedding", "a sentence embedder")
_add_command("turn", "a model that tells the end of a turn")


@build.command("all")
def build_all(
    recipe: str = typer.Option("starter", help=f"One of {', '.join(RECIPES)}."),
    llm: Checkpoint = None,
    vision: Checkpoint = None,
    speech: Checkpoint = None,
    embedding: Checkpoint = None,
    turn: Checkpoint = None,
    engines: Engines = None,
    packages: Path | None = typer.Option(
        None, envvar=PACKAGES_VARIABLE, help="A folder with the starter set's wheels: no network is asked."
    ),
    missing: bool = typer.Option(False, "--missing", help="Only what is not there from the same checkpoint."),
) -> None:
    """Build an engine for every task from public checkpoints, and say how they are served."""
    import shlex

    from trimodal.build_support import operator_errors

    if recipe not in RECIPES:
        raise typer.BadParameter(f"--recipe {recipe}: known are {', '.join(RECIPES)}")
    put_into(engines)
    if packages:
        os.environ[PACKAGES_VARIABLE] = str(packages.absolute())
    own = {"llm": llm, "vision": vision, "speech": speech, "embedding": embedding, "turn": turn}
    with operator_errors():
        built, code = build_recipe(recipe, own, missing=missing)
    if code:
        raise typer.Exit(code)
    changes = [f"--engines {shlex.quote(str(engines))}"] if engines else []
    if PROFILES[recipe] != "cpu":
        changes.append(f"--profile {PROFILES[recipe]}")
    changes += [f"--set {setting}" for part in RECIPES[recipe].values() for setting in part.settings]
    typer.echo("built; serve them with:" if built else "all is there; serve it with:")
    typer.echo(" ".join(["  trimodal serve", *changes]))


def put_into(engines: Path | None) -> None:
    """Names the folder of the engines to the scripts, and to whoever looks for what was built.

    Raises: SettingsError: as `expanded`.
    """
    if engines:
        from trimodal.paths import expanded

        os.environ[ENGINES_VARIABLE] = str(expanded(engines, "--engines"))


def build_recipe(recipe: str, own: Mapping[str, str | None], *, missing: bool) -> tuple[list[str], int]:
    """Builds a recipe's engines, or only the missing ones; which tasks were built, and the exit code.

    `own` has other checkpoints by task. Raises: ArtefactError: nothing was built.
    """
    parts = RECIPES[recipe]
    sources = {task: own.get(task) or part.source for task, part in parts.items()}
    scripts = {
        task: f"{task}_{part.runtime or RUNTIMES[task][0]}"
        for task, part in parts.items()
        if not (missing and is_built(task, part, sources[task]))
    }
    check_installed(list(scripts.values()))
    fetch({task: sources[task] for task in scripts})
    for task, script in scripts.items():
        if code := run_script(script, [sources[task], *parts[task].options]):
            return list(scripts), code
    return list(scripts), 0


def is_built(task: str, part: Part, source: str) -> bool:
    """Whether all artefacts of a part are there, and made of a checkpoint of this name."""
    from trimodal.errors import ArtefactError
    from trimodal.manifest import read_manifest
    from trimodal.paths import artefact_root, expanded

    root = artefact_root(MODELS[task])
    try:
        made_of = {read_manifest(root / name, task=task, runtime=None).source for name in part.artefacts}
    except ArtefactError:
        return False
    # Some builds name the hub's id or the path as it was given, others the directory alone.
    names = {Path(source).name, expanded(Path(source), "the checkpoint", ArtefactError).resolve().name}
    return {Path(one).name for one in made_of} <= names


def check_installed(scripts: Sequence[str]) -> None:
    """Raises: ArtefactError naming what these scripts import and lack, and how it is installed."""
    from importlib.util import find_spec

    from trimodal.errors import ArtefactError

    wanted = dict.fromkeys(name for script in scripts for name in NEEDS.get(script, ()))
    if missing := [name for name in wanted if find_spec(name) is None]:
        steps = [INSTALL_TORCH] if "torch" in missing and not NVIDIA_DRIVER.exists() else []
        steps += [INSTALL] if missing != ["optimum"] else []
        steps += [INSTALL_OPTIMUM] if "optimum" in missing else []
        raise ArtefactError(f"not installed: {', '.join(missing)}; {' && '.join(steps)}")


def fetch(sources: Mapping[str, str]) -> None:
    """Gets every checkpoint before the first build, which takes minutes. Raises: ArtefactError."""
    from trimodal.build_support import resolve_checkpoint
    from trimodal.errors import ArtefactError
    from trimodal.paths import expanded

    for task, source in sources.items():
        try:
            file = expanded(Path(source), "the checkpoint", ArtefactError)
            if not (file.is_file() and file.suffix == FILES.get(task)):
                resolve_checkpoint(source)
        except ArtefactError as error:
            raise ArtefactError(f"{task}: {error}: trimodal build all --{task} DIRECTORY") from None


def run_script(name: str, arguments: Sequence[str]) -> int:
    """Runs build/<name>.py with this interpreter; its exit code. Raises: ArtefactError (not installed)."""
    import sys

    from trimodal import build_support
    from trimodal.host import settle_python
    from trimodal.paths import PACKAGE, data_directory

    check_installed([name])
    # The scripts import this very package, also where it runs from a source tree that is not installed.
    paths = [str(PACKAGE.parent), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    settle_python(environment)
    command = [sys.executable, str(data_directory() / "build" / f"{name}.py"), *arguments]
    return build_support.run_script(command, environment)
