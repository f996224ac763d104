"""Speculation in TensorRT-LLM's terms, and sizes and trees that are refused."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from tests.builders.engine_builds import Build, sentence
from tests.doubles.gpu_libraries import Recorder

pytestmark = [pytest.mark.build, pytest.mark.filterwarnings("ignore")]


def test_drafted_speculation_in_the_library_s_terms(recorder: Recorder, llama: Path, tmp_path: Path) -> None:
    module = importlib.import_module("steps.llm.speculation")
    (tmp_path / "tree.json").write_text("[[0], [0, 0], [1]]")
    tree = module.read_choices(tmp_path / "tree.json")
    medusa = module.Speculation("medusa", draft=llama, draft_len=8, heads=2, choices=tree)
    config = medusa.config()
    assert type(config).__name__ == "MedusaDecodingConfig"
    assert (config.speculative_model, config.num_medusa_heads, config.max_draft_len) == (llama, 2, 8)
    assert config.medusa_choices == [[0], [0, 0], [1]]
    assert medusa.figures()["draft"] == "tiny"
    eagle = module.Speculation("eagle", draft=llama)
    config = eagle.config()
    assert type(config).__name__ == "EagleDecodingConfig"
    assert (config.use_dynamic_tree, config.eagle_choices, config.max_draft_len) == (True, None, 63)
    assert config.dynamic_tree_max_topK == config.max_non_leaves_per_layer
    assert config.num_eagle_layers == eagle.heads
    with_tree = module.Speculation("eagle", draft=llama, choices=tree)
    fixed = with_tree.config()
    assert (fixed.use_dynamic_tree, fixed.eagle_choices, fixed.max_draft_len) == (False, tree, 63)
    # Any other depth than the tree's, and the library would lower max_draft_len to it.
    assert fixed.num_eagle_layers == with_tree.figures()["heads"] == 2


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--speculation", "medusa"), "needs --draft-choices"),
        (("--speculation", "eagle", "--pp", "2"), "works without pipeline stages"),
        (("--speculation", "eagle", "--precision", "int8-wo"), "built from a 16-bit checkpoint"),
        (("--speculation", "eagle", "--max-batch-size", "513"), "at most --max-batch-size 512"),
        (
            ("--speculation", "eagle", "--draft-choices", "[[0], [0, 0, 0]]"),
            "is no path that the tree leads to",
        ),
        (("--speculation", "eagle", "--draft-choices", "{}x"), "is not a JSON list of lists"),
        (
            ("--speculation", "eagle", "--draft-choices", "[[0], [0, 0]]", "--draft-heads", "1"),
            "has 2 paths of up to 2 tokens",
        ),
    ],
)
def test_unfit_speculation_is_one_sentence(
    build_engine: Build,
    llama: Path,
    recorder: Recorder,
    tmp_path: Path,
    options: tuple[str, ...],
    expected: str,
) -> None:
    given: list[object] = list(options)
    if "--draft-choices" in given:
        place = given.index("--draft-choices") + 1
        (tmp_path / "tree.json").write_text(str(given[place]))
        given[place] = tmp_path / "tree.json"
    assert expected in sentence(build_engine(llama, "--draft", llama, *given))
    assert recorder.calls == []
