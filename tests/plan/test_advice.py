"""Remedies must fit themselves, and be the first of their kind that does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.plan.model_shapes import LLAMA_8B, LLAMA_70B, architecture
from trimodal.plan import cards
from trimodal.plan.advice import advise
from trimodal.plan.cards import find_card
from trimodal.plan.memory import Deployment, size

H100 = find_card("H100")


def test_what_fits_needs_none(tmp_path: Path) -> None:
    assert advise(architecture(tmp_path, LLAMA_8B), Deployment(card=H100)) == []


def test_a_70b_in_16_bits_wants_fewer_bits_or_more_gpus(tmp_path: Path) -> None:
    model = architecture(tmp_path, LLAMA_70B)
    plan = Deployment(card=H100, max_num_tokens=2048, max_batch_size=64)
    assert advise(model, plan) == ["--precision fp8 --kv-precision auto", "--tp 2 --pp 1"]
    assert not size(model, replace(plan, precision="fp8")).problems
    assert not size(model, replace(plan, tp=2)).problems
    long = replace(plan, max_seq_len=131072)
    assert size(model, replace(long, tp=2)).problems
    assert advise(model, long)[-1] == "--tp 4 --pp 1"


def test_a_card_without_fp8_is_told_of_int8(tmp_path: Path) -> None:
    model = architecture(tmp_path, LLAMA_70B)
    plan = Deployment(card=find_card("A100 80GB"), precision="fp8", max_num_tokens=2048)
    assert advise(model, plan)[0] == "--precision int8 --kv-precision auto"


def test_a_sequence_that_is_too_long_is_told_the_longest(tmp_path: Path) -> None:
    model = architecture(tmp_path, LLAMA_8B)
    plan = Deployment(card=find_card("L4"), max_seq_len=65536)
    remedy, bits, _ = advise(model, plan)
    length = int(remedy.removeprefix("--max-seq-len "))
    assert not size(model, replace(plan, max_seq_len=length)).problems
    assert size(model, replace(plan, max_seq_len=length + 512)).problems
    assert bits == "--precision fp8 --kv-precision auto"
    kv_alone = replace(plan, kv_precision="fp8")
    assert size(model, kv_alone).problems  # Or it would have been the first of its kind.


def test_a_cpu_is_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cards, "host_memory", lambda: (8 << 30, 4 << 30))
    cpu = find_card("CPU")
    assert (cpu.memory, cpu.cuda, cpu.has_fp8) == (8 << 30, 8 << 30, False)
    assert cpu.bandwidth > 0
