"""Every rule fires on its broken repository, with a place, and is silent on the repaired one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.check.cases.base import BATCHES, DYNAMIC, EXECUTE, Case
from tests.check.cases.hurting import HURTING
from tests.check.cases.refused import REFUSED
from tests.check.cases.shapes import SHAPES
from trimodal.check.examine import examine
from trimodal.check.findings import Finding, Target
from trimodal.check.repository import read_repository
from trimodal.check.rules import RULES, select_rules

CASES = REFUSED + HURTING
OURS = Path(__file__).parents[2] / "model_repository"


def look(root: Path, rules: frozenset[str] = frozenset(RULES), **target: object) -> list[Finding]:
    repository = read_repository(root)
    files = tuple(sorted(root.glob("deployment/*")))
    return examine(repository, repository.profiles, Target((24, 10), deployment=files, **target), rules)  # type: ignore[arg-type]


def write(root: Path, **files: str) -> Path:
    """A model m with these files: `config_pbtxt="…"` is config.pbtxt, `model_py` is 1/model.py."""
    for name, text in ({"model_py": EXECUTE} | files).items():
        file = root / "m" / {"model_py": "1/model.py"}.get(name, name.replace("_", "."))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_broken_repository_is_found_and_the_repaired_one_is_clean(case: Case, tmp_path: Path) -> None:
    case.write(tmp_path / "broken", broken=True)
    found = [one for one in look(tmp_path / "broken", **case.target) if one.rule == case.rule]
    assert found, "nothing found"
    if case.line:
        assert found[0].place.line == case.line
    assert found[0].sentence
    assert found[0].remedy
    case.write(tmp_path / "clean", broken=False)
    left = [one for one in look(tmp_path / "clean", **case.target) if one.severity != "note"]
    assert not left, [f"{one.rule} {one.sentence}" for one in left]
    assert case.rule not in {one.rule for one in look(tmp_path / "clean", **case.target)}


def test_every_rule_has_a_case() -> None:
    assert {case.rule for case in CASES} == set(RULES)
    assert {case.rule for case in REFUSED} == {rule.id for rule in RULES.values() if rule.refused}
    assert len({case.id for case in CASES}) == len(CASES)


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_a_correct_repository_is_not_blamed(name: str, tmp_path: Path) -> None:
    for path, text in SHAPES[name].items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    found = [one for one in look(tmp_path) if one.severity != "note"]
    assert not found, [f"{one.place.file.name}:{one.place.line} {one.rule} {one.sentence}" for one in found]


@pytest.mark.parametrize(
    "profiles", [["cpu"], ["cuda"], ["default"], ["cpu", "cuda", "default"]], ids=", ".join
)
def test_our_repository_is_clean(profiles: list[str]) -> None:
    repository = read_repository(OURS)
    target = Target((24, 10), slo_ms=50, cores=8)
    found = [one for one in examine(repository, profiles, target, frozenset(RULES)) if one.rule != "TRI027"]
    assert not found, [f"{one.place.file}:{one.place.line} {one.rule} {one.sentence}" for one in found]


def test_our_repository_broken_on_purpose_is_found(tmp_path: Path) -> None:
    ignore = shutil.ignore_patterns("onnx-*", "openvino-*", "ctranslate2-*", "torch-*", "__pycache__")
    repository = tmp_path / "model_repository"
    shutil.copytree(OURS, repository, ignore=ignore)
    file = repository / "llm" / "configs" / "cpu.pbtxt"
    file.write_text(file.read_text().replace('key: "max_num_seqs"', 'key: "max_num_sequences"'))
    (found,) = [one for one in look(repository) if one.severity != "note"]
    assert (found.rule, found.place.file, found.place.model) == ("TRI092", file, "llm")
    assert (
        file.read_text()
        .splitlines()[found.place.line - 1]
        .startswith('parameters { key: "max_num_sequences"')
    )


@pytest.mark.parametrize(
    "text",
    [
        DYNAMIC % "preferred_batch_size: [ 16 ]  # trimodal: ignore[TRI030]\n",
        DYNAMIC % "\n# as tuned; trimodal: ignore[TRI031,TRI030]\npreferred_batch_size: [ 16 ]\n",
    ],
)
def test_a_comment_switches_a_rule_off_for_its_line(text: str, tmp_path: Path) -> None:
    write(tmp_path, config_pbtxt=text)
    assert not look(tmp_path)
    write(tmp_path, config_pbtxt=text.replace("TRI030", "TRI032"))
    assert [one.rule for one in look(tmp_path)] == ["TRI030"]


def test_a_number_that_no_enumeration_has_is_found(tmp_path: Path) -> None:
    """Triton 2.51 loads such a model."""
    write(tmp_path, config_pbtxt=BATCHES.replace("TYPE_FP32", "-1"))
    found = look(tmp_path)  # of the input and of the output
    assert [(one.rule, one.place.line) for one in found] == [("TRI001", 4), ("TRI001", 5)]
    assert all("data_type is -1" in one.sentence for one in found)


def test_a_comment_in_a_model_file_counts_too(tmp_path: Path) -> None:
    line = "import no_such_module  # trimodal: ignore[TRI112]\n"
    write(tmp_path, config_pbtxt=BATCHES, model_py=line + EXECUTE)
    assert not look(tmp_path)


def test_rules_are_chosen_by_their_beginnings(tmp_path: Path) -> None:
    write(tmp_path, config_pbtxt=(DYNAMIC % "preferred_batch_size: [ 16 ]") + 'name: "other"\n')
    assert [one.rule for one in look(tmp_path, select_rules(("TRI03",), ()))] == ["TRI030"]
    assert [one.rule for one in look(tmp_path, select_rules((), ("TRI03",)))] == ["TRI010"]
    assert not look(tmp_path, select_rules(("TRI03",), ("TRI030",)))
    with pytest.raises(ValueError, match="TRI9 is no rule"):
        select_rules(("TRI9",), ())


def test_a_file_that_two_profiles_read_is_told_once(tmp_path: Path) -> None:
    write(tmp_path, config_pbtxt=DYNAMIC % "preferred_batch_size: [ 16 ]")
    other = tmp_path / "n" / "configs" / "cpu.pbtxt"
    other.parent.mkdir(parents=True)
    other.write_text(BATCHES)
    (tmp_path / "n" / "1").mkdir()
    (tmp_path / "n" / "1" / "model.py").write_text(EXECUTE)
    repository = read_repository(tmp_path)
    found = examine(repository, ["cpu", "default"], Target((24, 10)), frozenset(RULES))
    assert [one.rule for one in found] == ["TRI030"]


def test_newer_servers_lift_what_they_fixed(tmp_path: Path) -> None:
    write(tmp_path, config_pbtxt=DYNAMIC % "" + "response_cache { enable: true }\n")
    repository = read_repository(tmp_path)
    for release, expected in (((25, 8), ["TRI036"]), ((25, 9), [])):
        found = examine(repository, repository.profiles, Target(release), select_rules((), ("TRI086",)))
        assert [one.rule for one in found] == expected


def test_a_version_of_20_digits_on_which_the_server_aborts_is_named(tmp_path: Path) -> None:
    write(tmp_path, config_pbtxt=BATCHES)
    (tmp_path / "m" / "1").rename(tmp_path / "m" / f"{2**63 - 1}")
    assert not look(tmp_path)
    (tmp_path / "m" / f"{2**63 - 1}").rename(tmp_path / "m" / "99999999999999999999")
    (found,) = look(tmp_path)
    assert found.rule == "TRI014"
    assert found.sentence.startswith("the folder m/99999999999999999999 is no version")


def test_versions_that_are_there_are_named_to_whoever_asks_for_others(tmp_path: Path) -> None:
    config = BATCHES + "version_policy { specific { versions: [ 3 ] } }\n"
    (found,) = (one for one in look(write(tmp_path, config_pbtxt=config)) if one.rule == "TRI014")
    assert found.remedy == "name one of them in version_policy, as specific { versions: [ 1 ] }"
