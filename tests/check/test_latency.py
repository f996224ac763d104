from __future__ import annotations

from pathlib import Path

import pytest

from trimodal.check.latency import Item, checklist
from trimodal.check.repository import read_repository

OURS = Path(__file__).parents[2] / "model_repository"


def items(root: Path, profile: str) -> dict[str, Item]:
    return {item.name: item for item in checklist(read_repository(root).of(profile))}


@pytest.mark.parametrize("profile", ["cpu", "cuda", "default"])
def test_our_repository_has_evidence_at_the_line(profile: str) -> None:
    found = items(OURS, profile)
    for name in ("responses are streamed", "prefix caching", "compiled networks", "batching on the server"):
        assert found[name].state == "done", name
        for evidence in found[name].evidence:
            file, line, text = evidence.split(":", 2)
            assert text.split()[0].rstrip(":") in (OURS / file).read_text().splitlines()[int(line) - 1]


def test_the_vision_steps_are_quantised_on_cpus() -> None:
    quantised = items(OURS, "cpu")["models are quantised"].evidence
    assert any(
        one.startswith("llm/configs/cpu.pbtxt:") and one.endswith("openvino-int8") for one in quantised
    )


def test_a_plain_repository_is_told_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "config.pbtxt").write_text(
        'backend: "python"\nparameters { key: "speculation" value { string_value: "none" } }\n'
    )
    found = items(tmp_path, "default")
    states = {item.name: item.state for item in found.values()}
    assert set(states.values()) == {"missing", "open"}
    assert states["speculative decoding"] == "missing"
    assert all(len(item.evidence) == 1 for item in found.values())


def test_the_arguments_of_vllm_count(tmp_path: Path) -> None:
    folder = tmp_path / "m" / "1"
    folder.mkdir(parents=True)
    (tmp_path / "m" / "config.pbtxt").write_text('backend: "vllm"\n')
    (folder / "model.json").write_text('{"enable_prefix_caching": true, "quantization": "awq"}')
    found = items(tmp_path, "default")
    assert found["prefix caching"].state == found["models are quantised"].state == "done"
