from pathlib import Path

import pytest

from trimodal.errors import InvalidArgument, SettingsError
from trimodal.llm.tiers import Tier, Tiers, read_tiers

SHIPPED = Path(__file__).parents[2] / "model_repository" / "llm" / "tiers.toml"


def write(folder: Path, content: str) -> Path:
    file = folder / "tiers.toml"
    file.write_text(content)
    return file


def test_the_shipped_file_changes_nothing_for_who_names_no_tier() -> None:
    tiers = read_tiers(SHIPPED)
    assert tiers.named("") == Tier()
    assert set(tiers.tier) == {"standard", "premium", "batch"}
    assert tiers.named("premium").priority > tiers.named("standard").priority > tiers.named("batch").priority


def test_a_file_is_read_whole(tmp_path: Path) -> None:
    tiers = read_tiers(
        write(
            tmp_path,
            'default = "free"\n[tier.free]\nmax_prompt_tokens = 100\nkv_share = 0.25\ntrim = "oldest_turns"\n'
            "[tier.paid]\npriority = 5\nttft_deadline_ms = 300\ndeadline_ms = 9000\nitl_bound_ms = 80.5\n",
        )
    )
    assert tiers.named("") == Tier(max_prompt_tokens=100, kv_share=0.25, trim="oldest_turns")
    assert tiers.named("paid") == Tier(priority=5, ttft_deadline_ms=300, deadline_ms=9000, itl_bound_ms=80.5)
    with pytest.raises(InvalidArgument, match="tier is 'gold': one of free, paid is needed"):
        tiers.named("gold")


def test_without_a_file_there_is_one_tier() -> None:
    assert Tiers().named("") == Tiers().named("standard") == Tier()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('default = "gold"\n[tier.free]\n', "default 'gold' is none of the tiers free"),
        (
            "[tier.standard]\npriorty = 3\n",
            "unknown parameter 'tier.standard.priorty' (did you mean priority?)",
        ),
        ("[teir.standard]\n", "unknown parameter 'teir' (did you mean tier?)"),
        ("[tier.standard]\npriority = 300\n", "'tier.standard.priority' = 300"),
        ("[tier.standard]\nkv_share = 0\n", "'tier.standard.kv_share' = 0"),
        ("[tier.standard]\nkv_share = nan\n", "'tier.standard.kv_share' = nan"),
        ("[tier.standard]\nitl_bound_ms = -1\n", "'tier.standard.itl_bound_ms' = -1"),
        ('[tier.standard]\ntrim = "middle"\n', "'tier.standard.trim' = 'middle'"),
        ("[tier.standard\n", "not valid TOML"),
        ("default = " + "[" * 5000, "not valid TOML"),
        ("tier = 3\n", "'tier' = 3"),
    ],
)
def test_a_bad_file_names_itself_and_the_key(tmp_path: Path, content: str, problem: str) -> None:
    with pytest.raises(SettingsError) as told:
        read_tiers(write(tmp_path, content))
    assert str(told.value).startswith("tiers.toml: ")
    assert problem in str(told.value)


def test_a_missing_or_unreadable_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"parameter 'tiers': no.toml cannot be read: No such file"):
        read_tiers(tmp_path / "no.toml")
    (tmp_path / "latin.toml").write_bytes(b"# \xff")
    with pytest.raises(SettingsError, match="latin.toml: not valid TOML"):
        read_tiers(tmp_path / "latin.toml")
