"""Builds every demo engine that is missing, outdated or from another checkpoint; the rest is left alone.

    python build/demo/build_all.py [--force] [--engines DIR]

It only decides what to build: each engine comes from the same build script, with the
same check, as a real checkpoint's.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from trimodal.errors import ArtefactError
from trimodal.manifest import checkpoint_sha256, read_manifest
from trimodal.paths import ENGINES_VARIABLE
from trimodal.vision.artefact import read_classifier

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY = ROOT / "model_repository"
DEMO = ROOT / "build" / "demo"


@dataclass(frozen=True)
class Build:
    """One run of a build script, and the artefacts that it leaves."""

    what: str
    task: str
    runtime: str
    artefacts: tuple[str, ...]
    checkpoint: Path | None
    command: tuple[str, ...]
    committed: bool = False  # it comes with the repository, where every server looks, too

    def is_current(self, engines: Path | None) -> bool:
        """Whether all artefacts are there, open, and come from the checkpoint as it is now."""
        places = [_place(name, None if self.committed else engines) for name in self.artefacts]
        try:
            manifests = [read_manifest(place, task=self.task, runtime=self.runtime) for place in places]
            if self.task == "vision":
                for place in places:
                    read_classifier(place)  # refuses the form of an older version
        except ArtefactError:
            return False
        if self.checkpoint is None:
            return True
        now = checkpoint_sha256(self.checkpoint)
        return all(manifest.source_sha256 == now for manifest in manifests)


BUILDS = (
    Build(
        "language model, INT8", "llm", "openvino", ("llm/1/openvino-int8",), DEMO / "llm",
        ("build/llm_openvino.py", "build/demo/llm", "--precision", "int8"),
    ),
    Build(
        "its draft model, INT8", "llm", "openvino", ("llm/1/openvino-draft-int8",), DEMO / "llm-draft",
        ("build/llm_openvino.py", "build/demo/llm-draft", "--precision", "int8",
         "--name", "openvino-draft-int8"),
    ),
    Build(
        "digit classifier, FP32 and INT8", "vision", "onnxruntime",
        ("vision_classify/1/onnx-fp32", "vision_classify/1/onnx-int8"), DEMO / "vision",
        ("build/vision_onnx.py", "build/demo/vision", "--precision", "fp32", "--precision", "int8"),
    ),
    Build(
        "speech recogniser, INT8", "speech", "ctranslate2", ("speech_recognize/1/ctranslate2-int8",),
        DEMO / "speech", ("build/speech_ctranslate2.py", "build/demo/speech", "--precision", "int8"),
    ),
    Build(
        "sentence embedder, FP32", "embedding", "onnxruntime", ("embedding/1/onnx-fp32",), None,
        ("build/embedding_onnx.py", "--precision", "fp32"),
    ),
    Build(
        "judge of the answer cache, INT8", "judge", "onnxruntime", ("judge/1/onnx-int8",), None,
        ("build/judge/build.py", "--bfloat16", "--precision", "int8"), committed=True,
    ),
)  # fmt: skip


def _place(artefact: str, engines: Path | None) -> Path:
    """Where "model/1/name" lies: in the repository, or as model/name among the engines."""
    return engines / artefact.replace("/1/", "/") if engines else REPOSITORY / artefact


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the demo engines that are missing or outdated.")
    parser.add_argument("--force", action="store_true", help="build again what is not committed")
    parser.add_argument("--engines", type=Path, metavar="DIR", help="put them there, not into the repository")
    options = parser.parse_args()
    engines: Path | None = options.engines and options.engines.absolute()
    # Without --engines the demo's lie in the repository, wherever this user's own are put.
    environment = {name: value for name, value in os.environ.items() if name != ENGINES_VARIABLE}
    if engines:
        environment[ENGINES_VARIABLE] = str(engines)
    for build in BUILDS:
        if not (options.force and not build.committed) and build.is_current(engines):
            continue
        print(f"build: {build.what} …", flush=True)
        began = time.monotonic()
        done = subprocess.run([sys.executable, *build.command], cwd=ROOT, env=environment, check=False)
        if done.returncode:
            print(f"build: failed: python {' '.join(build.command)}", file=sys.stderr)
            return done.returncode
        print(f"build: {build.what}: {time.monotonic() - began:.0f} s\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
