"""The OpenVINO engine on a tiny language model, without a server: tokens in, tokens out."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from trimodal.errors import OperatorError
from trimodal.llm.engines.openvino import engine as engine_module
from trimodal.llm.engines.openvino import pipeline
from trimodal.llm.engines.protocol import Engine, EngineRequest, Output, Sampling, open_engine
from trimodal.llm.settings import LlmSettings

pytestmark = pytest.mark.build
Open = Callable[..., "Driver"]


class Driver:
    """Steps an engine as the core's loop does, and keeps what came out of it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.outputs: list[Output] = []
        self._id = 0

    def add(
        self, prompt: list[int], max_tokens: int = 48, salt: str = "", public: int = 0, **sampling: object
    ) -> int:
        self._id += 1
        how = Sampling(max_tokens, **sampling)  # type: ignore[arg-type]
        self.engine.add(EngineRequest(self._id, prompt, how, salt, public_tokens=public))
        return self._id

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            self.outputs += self.engine.step()

    def finish(self) -> None:
        for _ in range(5000):
            if not self.engine.has_work():
                return
            self.step()
        pytest.fail("the engine has work for ever")

    @property
    def running(self) -> int:
        """Sequences that it has, also those that it is about to drop."""
        return len(self.engine._sequences) + len(self.engine._leaving)  # type: ignore[attr-defined]

    def tokens(self, id: int) -> list[int]:
        return [token for output in self.outputs if output.id == id for token in output.token_ids]

    def last(self, id: int) -> Output:
        return [output for output in self.outputs if output.id == id][-1]

    def run(self, prompts: Sequence[list[int]], **sampling: object) -> list[list[int]]:
        ids = [self.add(prompt, **sampling) for prompt in prompts]
        self.finish()
        return [self.tokens(id) for id in ids]

    def computed(self, prompt: list[int], salt: str = "", public: int = 0) -> tuple[int, int]:
        """With one token a step: prompt tokens that were computed, and what the engine said was cached."""
        id = self.add(prompt, max_tokens=2, salt=salt, public=public)
        steps = 0
        while not self.tokens(id):
            self.step()
            steps += 1
        self.finish()
        return steps, self.last(id).cached_tokens


SPECULATION = pytest.mark.parametrize(
    "speculation", ["none", pytest.param("prompt_lookup", marks=pytest.mark.slow)]
)


@pytest.fixture
def opened(tiny: Path) -> Iterator[Open]:
    drivers = []

    def make(**settings: object) -> Driver:
        values = {
            "numerics": "reproducible",
            "threads": 1,
            "artefact": str(tiny),
            "num_kv_blocks": 256,
        }
        drivers.append(Driver(open_engine(LlmSettings.model_validate(values | settings))))
        return drivers[-1]

    yield make
    for driver in drivers:
        driver.engine.close()


def answers_alone(tiny: Path, prompts: list[list[int]]) -> list[list[int]]:
    """Greedy tokens of each prompt, alone and without any cache."""
    settings = LlmSettings(
        numerics="reproducible", threads=1, artefact=str(tiny), enable_prefix_caching=False
    )
    driver = Driver(open_engine(settings))
    answers = [driver.run([prompt])[0] for prompt in prompts]
    driver.engine.close()
    return answers


@pytest.fixture(scope="module")
def solo(tiny: Path, prompts: list[list[int]]) -> list[list[int]]:
    return answers_alone(tiny, prompts)


def long(prompts: list[list[int]], length: int, first: int) -> list[int]:
    """A prompt of `length` tokens that shares no block with one of another `first`."""
    return ([first] + sum(prompts, []))[:length]


@pytest.mark.parametrize("caching", [True, pytest.param(False, marks=pytest.mark.slow)])
@SPECULATION
def test_sixteen_at_once_get_the_solo_tokens(opened, prompts, solo, monkeypatch, speculation, caching):
    monkeypatch.setattr(
        "trimodal.llm.engines.openvino.speculation._MARGIN", 0.0
    )  # it may lose here: it must not be right only then
    driver = opened(speculation=speculation, enable_prefix_caching=caching)
    assert driver.run(prompts) == solo
    assert driver.run(prompts[:8] + prompts[:8]) == solo[:8] * 2, "twice the same, out of the cache"
    assert [driver.run([prompt])[0] for prompt in prompts] == solo
    stats = driver.engine.stats()
    assert stats.speculating == (speculation != "none")


@SPECULATION
def test_seeds(opened, prompts, monkeypatch, speculation):
    monkeypatch.setattr("trimodal.llm.engines.openvino.speculation._MARGIN", 0.0)
    driver = opened(speculation=speculation)

    def ask(seeds: list[int | None], temperature: float = 3.0) -> list[tuple[int, ...]]:
        ids = [driver.add(prompts[0], max_tokens=40, temperature=temperature, seed=seed) for seed in seeds]
        driver.finish()
        return [tuple(driver.tokens(id)) for id in ids]

    for temperature in (0.8, 3.0):
        assert len({ask([7], temperature)[0] for _ in range(4)}) == 1
    assert len(set(ask([1, 2, 3, 4, 2**32 + 1, 2**64 - 1]))) > 3
    assert len(set(ask([None] * 6))) > 3


def test_a_seed_means_the_same_among_others(opened, prompts):
    driver = opened()
    alone = [driver.run([prompt], temperature=0.8, seed=id)[0] for id, prompt in enumerate(prompts)]
    ids = [driver.add(prompt, temperature=0.8, seed=id) for id, prompt in enumerate(prompts)]
    driver.finish()
    assert [driver.tokens(id) for id in ids] == alone


def test_it_says_how_many_tokens_it_chose_for_a_step(opened, prompts, solo):
    driver = opened(max_num_batched_tokens=0)
    assert driver.engine.info.max_num_batched_tokens in range(128, 2049, 32)
    assert driver.run(prompts[:4]) == solo[:4]


def test_the_choice_opens_nothing_again_and_bounds_the_steps(opened, prompts, solo, monkeypatch):
    """To open once more took a fifth of the time until a server's first answer."""
    opening: list[int] = []
    open_pipeline = engine_module.open_pipeline

    def opens(settings, *, speculate):
        opening.append(settings.max_num_batched_tokens)
        return open_pipeline(settings, speculate=speculate)

    monkeypatch.setattr(engine_module, "open_pipeline", opens)
    monkeypatch.setattr(engine_module, "choose_step_tokens", lambda pipeline, settings: 128)
    driver = opened(max_num_batched_tokens=0)
    assert opening == [0]
    id = driver.add(long(prompts * 9, 500, first=5), max_tokens=1)
    steps = 0
    while not driver.tokens(id):
        driver.step()
        steps += 1
    assert steps == 4  # 500 tokens
    assert opened(max_num_batched_tokens=0, enable_prefix_caching=False).run(prompts[:2]) == solo[:2]
    assert opening == [0, 0]  # without it the pipeline alone bounds them, and was opened for the fewest
    monkeypatch.setattr(engine_module, "choose_step_tokens", lambda pipeline, settings: 256)
    assert opened(max_num_batched_tokens=0, enable_prefix_caching=False).run(prompts[:2]) == solo[:2]
    assert opening == [0, 0, 0, 256]


def test_an_engine_that_speculates_no_more_says_that_its_cache_is_empty(opened, prompts, solo):
    driver = opened(speculation="prompt_lookup")
    driver.run([prompts[0]])
    assert driver.engine.stats().cache_resets == 0
    driver.engine._judge.loses = True
    assert driver.run([prompts[0]]) == [solo[0]]
    stats = driver.engine.stats()
    assert (stats.cache_resets, stats.speculating) == (1, False)


def test_cached_tokens_are_true(opened, prompts):
    """One token a step: the steps to the first token are the prompt tokens that were computed."""
    driver = opened(max_num_batched_tokens=1)
    cold = long(prompts, 100, first=5)
    assert driver.computed(cold) == (100, 0)
    for prompt in (cold, cold[:96], cold[:97], cold[:64], cold[:63], cold[:40] + [9] * 20, [6, *cold]):
        computed, cached = driver.computed(prompt)
        # Whole blocks are counted. A partly filled last one may be found as well: never less than was said.
        assert cached <= len(prompt) - computed < cached + 32
    assert driver.computed([7, *cold]) == (101, 0)


def test_prompts_of_another_salt_are_computed_anew_and_answered_alike(opened, prompts):
    driver = opened(max_num_batched_tokens=1)
    prompt = long(prompts, 100, first=5)
    assert [driver.computed(prompt, salt) for salt in ("", "anna", "bert")] == [(100, 0)] * 3
    for salt in ("", "anna", "bert"):
        computed, cached = driver.computed(prompt, salt)
        assert (cached, computed < 32) == (96, True)
    anna, nobody = driver.add(prompt, salt="anna"), driver.add(prompt)
    driver.finish()
    assert driver.tokens(anna) == driver.tokens(nobody)
    assert driver.engine.info.unsalted == "repetition_penalty"


def test_what_is_public_is_found_by_every_salt_and_what_follows_by_its_own_alone(opened, prompts):
    driver = opened(max_num_batched_tokens=1)
    prompt = long(prompts, 100, first=5)
    assert driver.computed(prompt[:64]) == (64, 0)
    for salt in ("anna", "bert"):
        assert driver.computed(prompt, salt, public=64) == (36, 64)
    computed, cached = driver.computed(prompt, "anna", public=64)
    assert (cached, computed < 32) == (96, True)
    assert driver.computed(prompt, "carl") == (100, 0)
    anna, nobody = driver.add(prompt, salt="anna", public=64), driver.add(prompt)
    driver.finish()
    assert driver.tokens(anna) == driver.tokens(nobody)


@pytest.mark.parametrize(
    "settings", [{"prefix_cache_scope": "shared"}, {"enable_prefix_caching": False}], ids=["shared", "off"]
)
def test_a_graph_that_reads_salts_serves_where_none_is_needed(opened, prompts, monkeypatch, settings):
    """One of another exporter may read all bits of a token id: salted prompts would be answered otherwise."""
    monkeypatch.setattr(pipeline, "salted", lambda ids, salt: [id + 70 for id in ids])
    with pytest.raises(OperatorError, match="set prefix_cache_scope to shared"):
        opened()
    driver = opened(**settings)
    driver.run([prompts[0]])
    with pytest.raises(ValueError, match="and so a cache_salt"):
        driver.add(prompts[0], salt="anna")


def test_without_prefix_caching_nothing_is_cached(opened, prompts):
    driver = opened(max_num_batched_tokens=1, enable_prefix_caching=False)
    cold = long(prompts, 70, first=5)
    assert driver.computed(cold) == (70, 0)
    assert driver.computed(cold) == (70, 0)


@pytest.mark.parametrize(
    ("chunk", "steps"),
    [(1, 3), *(pytest.param(*one, marks=pytest.mark.slow) for one in ((1, 40), (5, 3), (24, 3), (32, 2)))],
)
def test_a_prompt_cancelled_half_way_leaves_no_unfilled_block_for_others(opened, prompts, chunk, steps):
    """The pipeline files blocks before they are filled: a reader would skip tokens never computed."""
    prompt = long(prompts, 108, first=5)
    driver = opened(max_num_batched_tokens=chunk)
    cancelled = driver.add(prompt)
    driver.step(steps)
    driver.engine.cancel(cancelled)
    following = driver.add(prompt)
    while not driver.tokens(following):
        driver.step()
        steps += 1
    assert steps * chunk >= len(prompt), "every token of the prompt was computed by somebody"
    driver.finish()
    assert not driver.tokens(cancelled)


def test_long_prompts_that_are_given_up_cost_the_next_request_one_step(opened, prompts):
    driver = opened(max_num_batched_tokens=64, num_kv_blocks=512)
    left = [driver.add(long(prompts * 9, 2000, first)) for first in (5, 6, 7, 8)]
    driver.step(3)
    for id in left:
        driver.engine.cancel(id)
    assert driver.running == 0
    following = driver.add([9, 4])
    driver.step()
    assert driver.tokens(following)
    driver.finish()
    assert driver.engine.stats().kv_usage == 0
    assert not any(driver.tokens(id) for id in left)


def test_a_short_prompt_is_computed_between_the_pieces_of_long_ones(opened, prompts):
    driver = opened(max_num_batched_tokens=64, num_kv_blocks=512)
    prompt = long(prompts * 9, 1000, first=5)
    first = driver.add(prompt)
    driver.step(2)
    short = driver.add(prompts[0][:40], max_tokens=2)
    driver.step(2)  # of 64 tokens, of which the long one has 32
    assert driver.tokens(short)
    assert not driver.tokens(first)
    driver.finish()
    assert driver.tokens(first) == opened(num_kv_blocks=512, enable_prefix_caching=False).run([prompt])[0]


@pytest.mark.parametrize("numerics", ["reproducible", pytest.param("fast", marks=pytest.mark.slow)])
def test_answers_are_the_same_after_two_hundred_prompts_that_were_given_up(opened, prompts, numerics):
    """Each shares a beginning with prompts that are answered, and most of them the blocks that they left."""
    rng = random.Random(0)
    driver = opened(max_num_batched_tokens=64, num_kv_blocks=160, numerics=numerics)
    asked = [long(prompts * 2, 150 + 90 * at, first=5 + at % 2) for at in range(4)]

    def answers() -> list[list[int]]:
        return [driver.run([prompt], max_tokens=16)[0] for prompt in asked]

    before = answers()
    live: list[int] = []
    for _ in range(200):
        prompt = rng.choice(asked)
        live.append(driver.add(prompt[: rng.randrange(40, len(prompt))] + [rng.randrange(300)] * 40))
        driver.step(rng.randrange(3))
        if len(live) > 6:
            driver.engine.cancel(live.pop(rng.randrange(len(live))))
    for id in live:
        driver.engine.cancel(id)
    driver.finish()
    assert (driver.running, driver.engine.stats().kv_usage) == (0, 0)
    assert answers() == before


@pytest.mark.parametrize("after", [0, 1, 5])
def test_a_cancelled_sequence_frees_its_blocks_and_says_no_more(opened, prompts, solo, after):
    driver = opened()
    leaving = [driver.add(prompt, max_tokens=200) for prompt in prompts[:4]]
    staying = driver.add(prompts[4])
    driver.step(after)
    for id in leaving:
        driver.engine.cancel(id)
    said = len([output for output in driver.outputs if output.id in leaving])
    driver.step()
    assert driver.running == 1
    driver.finish()
    assert driver.tokens(staying) == solo[4]
    assert len([output for output in driver.outputs if output.id in leaving]) == said
    assert (driver.running, driver.engine.stats().kv_usage) == (0, 0)
    driver.engine.cancel(leaving[0])  # unknown by now
    driver.engine.cancel(999)
    assert driver.run([prompts[0]]) == [solo[0]]


def test_answers_that_outgrow_the_pool_are_whole_and_leave_no_unfilled_block(opened, prompts):
    """The pipeline lets the newest wait and computes again what it took from them."""
    alone = opened(num_kv_blocks=256)
    asked = prompts[:4]
    whole = [alone.run([prompt], max_tokens=300)[0] for prompt in asked]
    driver = opened(num_kv_blocks=24)  # 768 tokens for 4 × 330
    steps, ids = 0, [driver.add(prompt, max_tokens=300) for prompt in asked]
    while driver.engine.has_work():
        driver.step()
        steps += 1
    assert [driver.tokens(id) for id in ids] == whole
    assert steps < 2 * 300, "less than two after two would take"
    # Given up while they wait or are computed again.
    ids = [driver.add(prompt, max_tokens=300) for prompt in asked]
    driver.step(230)
    for id in ids:
        driver.engine.cancel(id)
    driver.finish()
    assert (driver.running, driver.engine.stats().kv_usage) == (0, 0)
    following = [
        driver.run([prompt + made[:200]], max_tokens=20)[0] for prompt, made in zip(asked, whole, strict=True)
    ]
    assert following == [made[200:220] for made in whole]


def test_a_prompt_that_the_pool_cannot_hold_ends_alone(opened, prompts, solo):
    driver = opened(num_kv_blocks=8)  # 256 tokens
    fits = driver.add(prompts[0])
    too_long = driver.add(long(prompts * 3, 400, first=5))
    driver.finish()
    assert driver.last(too_long).finish_reason == "error"
    assert driver.last(too_long).error == "the engine ran out of KV blocks for this request"
    assert driver.tokens(fits) == solo[0]
    assert driver.running == 0


def test_an_empty_prompt_is_refused_and_the_next_one_runs(opened, prompts, solo):
    driver = opened()
    with pytest.raises((RuntimeError, ValueError)):
        driver.add([])
    assert driver.run([prompts[0]]) == [solo[0]]


def ending(tiny: Path, place: Path, token: int) -> Path:
    """The tiny model with another end-of-sequence token."""
    shutil.copytree(tiny, place)
    manifest = json.loads((place / "manifest.json").read_text())
    manifest["extra"]["eos_token_ids"] = [token]
    (place / "manifest.json").write_text(json.dumps(manifest))
    return place


def test_stop_tokens_the_fewest_tokens_and_an_end_that_is_ignored(opened, prompts, solo, tiny, tmp_path):
    made = solo[0]
    end = next(token for token in made[6:] if token not in made[:6])
    at = made.index(end)

    def tell(driver: Driver, **sampling: object) -> tuple[list[int], str | None]:
        id = driver.add(prompts[0], **sampling)
        driver.finish()
        return driver.tokens(id), driver.last(id).finish_reason

    plain = opened()
    assert tell(plain, stop_token_ids=(end,)) == (made[: at + 1], "stop")
    longer, _ = tell(plain, stop_token_ids=(end,), min_tokens=at + 4)
    assert longer[:at] == made[:at]
    assert end not in longer[: at + 4], "it may not come, rather than come and be passed over"
    assert len(longer) > at + 4
    ends = opened(artefact=str(ending(tiny, tmp_path / "ends", end)))
    assert tell(ends) == (made[: at + 1], "stop")
    assert tell(ends, ignore_eos=True) == (made, "length")
    other = next(token for token in made[at + 1 :] if token not in made[: at + 1])
    first = made.index(other)
    assert tell(ends, ignore_eos=True, stop_token_ids=(other,)) == (made[: first + 1], "stop")


def own_logprobs(tiny: Path, prompt: list[int], made: list[int]) -> list[float]:
    """Of tokens after a prompt, by the model alone: one pass over all of them, natural logarithms."""
    import openvino

    model = openvino.Core().compile_model(
        str(tiny / "openvino_model.xml"), "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
    )
    ids = np.array([prompt + made[:-1]], np.int64)
    request = model.create_infer_request()
    inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "beam_idx": np.zeros(1, np.int32)}
    inputs["position_ids"] = np.arange(ids.shape[1])[None]
    (logits,) = request.infer(inputs).values()
    rows = logits[0][len(prompt) - 1 :].astype(np.float64)
    sums = np.log(np.exp(rows - rows.max(1, keepdims=True)).sum(1)) + rows.max(1)
    return [float(row[id] - total) for row, id, total in zip(rows, made, sums, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize("speculation", ["none", pytest.param("prompt_lookup", marks=pytest.mark.slow)])
def test_log_probabilities_are_the_models_own_whatever_is_done_to_them_then(opened, tiny, speculation):
    """Temperature, filters, penalties and grammars choose; the probabilities are told as they were before."""
    driver = opened(speculation=speculation)
    assert set(driver.engine.info.unsupported) == {"logit_bias", "lora_name", "prompt_logprobs"}
    assert driver.engine.info.max_top_logprobs == 0
    prompt = [1, 4, 70, 300, 12]
    for sampling in (
        {},
        {"temperature": 2.0, "seed": 5},
        {"temperature": 1.5, "seed": 7, "top_k": 40, "top_p": 0.95, "min_p": 0.01},
        {"temperature": 1.5, "seed": 7, "presence_penalty": 1.0, "repetition_penalty": 1.3},
        {"temperature": 1.0, "seed": 1, "grammar": 'root ::= "{" [a-z ]* "}"'},
    ):
        id = driver.add(prompt, max_tokens=30, logprobs=0, **sampling)
        driver.finish()
        told = [one.chosen for output in driver.outputs if output.id == id for one in output.logprobs]
        own = own_logprobs(tiny, prompt, driver.tokens(id))
        # The KV cache has 8 bits. Logarithms of small probabilities are the least exact.
        assert np.abs(np.array(told) - own).max() < 0.8
        assert np.abs(np.array(told) - own).mean() < 0.15


def test_who_asks_for_log_probabilities_gets_the_same_tokens_and_others_get_none(opened, prompts):
    driver = opened()
    sampling = {"temperature": 2.0, "seed": 3}
    plain, told = (driver.add(prompts[0], logprobs=top, **sampling) for top in (None, 0))
    driver.finish()
    assert driver.tokens(plain) == driver.tokens(told)
    assert all(output.logprobs == () for output in driver.outputs if output.id == plain)
    assert all(
        len(output.logprobs) == len(output.token_ids) for output in driver.outputs if output.id == told
    )
