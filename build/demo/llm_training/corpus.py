"""Prepares what the demo LLM is trained on: tokenizer, chat template, conversations as token ids, batches.

Not responsible for the texts (data.py), the questions (phrases.py) or training (train_llm.py).
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from llm_training.conversations import conversation, picture_talk
from llm_training.data import load_passages, load_topics
from llm_training.phrases import GREETING, REFUSAL, question_about, unknown_question
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

SEED = 20250
SPECIAL = ("<|pad|>", "<|begin|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>")
CHAT_TEMPLATE = (
    "{{- bos_token -}}"
    "{%- for message in messages -%}"
    "{{- '<|' + message['role'] + '|>' + message['content'] + '<|end|>' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"
)
VOCABULARY, POSITIONS, TOKENS_A_BATCH = 2048, 1024, 2048
DECISIVE = 28


class Sample(NamedTuple):
    """A tokenized conversation: ids[n], and whether the assistant says each of them."""

    ids: list[int]
    said: list[bool]


def train_tokenizer(directory: Path) -> None:
    """Byte-level BPE over answers, passages and questions: any Unicode text goes through and comes back."""
    topics, random_ = load_topics(), random.Random(SEED)
    corpus = [topic["answer"] for topic in topics] * 8 + load_passages() + [REFUSAL, GREETING] * 8
    corpus += [question_about(topic, random_) for topic in topics for _ in range(40)]
    corpus += [unknown_question(random_) for _ in range(300)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=list(SPECIAL), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    tokenizer.train_from_iterator(corpus, trainer)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=SPECIAL[0], bos_token=SPECIAL[1], eos_token=SPECIAL[2],
        additional_special_tokens=list(SPECIAL[3:]), clean_up_tokenization_spaces=False,
        model_max_length=POSITIONS, chat_template=CHAT_TEMPLATE, padding_side="left",
    ).save_pretrained(directory)  # fmt: skip
    # Written as transformers 4 and 5 both read it; 5 alone knows the class and the list that it saves.
    path = directory / "tokenizer_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    settings["additional_special_tokens"] = settings.pop("extra_special_tokens")
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    path.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def encode(tokenizer: Tokenizer, messages: list[dict[str, str]]) -> Sample:
    """Token ids as CHAT_TEMPLATE renders them, and which the assistant says (its end mark included)."""
    mark = {token: tokenizer.token_to_id(token) for token in SPECIAL}
    ids, said = [mark["<|begin|>"]], [False]
    for message in messages:
        text = [*tokenizer.encode(message["content"]).ids, mark["<|end|>"]]
        ids += [mark[f"<|{message['role']}|>"], *text]
        said += [False] + [message["role"] == "assistant"] * len(text)
    return Sample(ids[:POSITIONS], said[:POSITIONS])


def beginning(sample: Sample) -> Sample:
    """The sample up to the first tokens of its last answer: those that decide which answer it is."""
    start = max(index for index, said in enumerate(sample.said) if not said) + 1
    return Sample(sample.ids[: start + DECISIVE], sample.said[: start + DECISIVE])


def batches(
    tokenizer: Tokenizer,
    long_share: Callable[[], float],
    seed: int,
    begun: float = 0.0,
    pictures_only: bool = False,
) -> Iterator[list[Sample]]:
    """Endless batches of similarly long samples, about TOKENS_A_BATCH tokens each, with the padding.

    Args:
        begun: share of the samples that end with the beginning of the last answer.
        pictures_only: only questions about a picture.
    """
    topics, passages, random_ = load_topics(), load_passages(), random.Random(seed)
    while True:
        pool = []
        for _ in range(300):
            long = random_.random() < long_share()
            talk = picture_talk(random_) if pictures_only else conversation(topics, passages, long, random_)
            sample = encode(tokenizer, talk)
            pool.append(beginning(sample) if random_.random() < begun else sample)
        pool.sort(key=lambda sample: len(sample.ids))
        ready: list[list[Sample]] = [[]]
        for sample in pool:
            if ready[-1] and (len(ready[-1]) + 1) * len(sample.ids) > TOKENS_A_BATCH:
                ready.append([])
            ready[-1].append(sample)
        random_.shuffle(ready)
        yield from ready
