"""The demo LLM's committed checkpoints: they load offline, recite exactly and share one tokenizer."""

import hashlib
import json
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).resolve().parents[3] / "build" / "demo"
sys.path.insert(0, str(DEMO))
MAIN, DRAFT = DEMO / "llm", DEMO / "llm-draft"

from llm_training import data, phrases, pictures  # noqa: E402

pytestmark = pytest.mark.build
TOPICS = data.load_topics()


# torch is imported where it is used: every worker collects this file, and one of them runs it.


@pytest.fixture(scope="module")
def tokenizer():
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(MAIN, local_files_only=True)


@pytest.fixture
def plain():
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(MAIN / "tokenizer.json"))


def load(directory):
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, local_files_only=True).eval()


@pytest.fixture(scope="module")
def model():
    return load(MAIN)


def said(model, tokenizer, chats, longest=64):
    """What the model generates after each chat."""
    import torch

    prompts = [
        tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True) for chat in chats
    ]
    batch = tokenizer(prompts, return_tensors="pt", padding=True, add_special_tokens=False)
    kept = {name: batch[name] for name in ("input_ids", "attention_mask")}
    with torch.inference_mode():
        ids = model.generate(**kept, max_new_tokens=longest, do_sample=False)
    return tokenizer.batch_decode(ids[:, kept["input_ids"].shape[1] :], skip_special_tokens=True)


@pytest.fixture
def wrong(plain):
    """`wrong(model, chats, answers)`: the pairs whose answer the model would not generate."""
    from llm_training import corpus, gate

    def find(model, chats, answers):
        pairs = list(zip(chats, answers, strict=True))
        talks = [[*chat, {"role": "assistant", "content": answer}] for chat, answer in pairs]
        right = gate.hits(model, [corpus.encode(plain, talk) for talk in talks])
        return [pair for pair, row in zip(pairs, right, strict=True) if not all(row)]

    return find


def asked(text):
    return [{"role": "user", "content": text}]


def test_one_pass_finds_what_is_generated(model, tokenizer, wrong):
    known = {topic["topic"]: topic["answer"] for topic in TOPICS}
    chats = [asked(text) for text in ("what is a lambda", "explain the pass statement", "what is a banana")]
    answers = [known["lambda"], known["pass"], "A banana is a fruit."]
    generated = said(model, tokenizer, chats)
    differ = [(chat, want) for chat, want, got in zip(chats, answers, generated, strict=True) if got != want]
    assert wrong(model, chats, answers) == differ == [(chats[2], answers[2])]


@pytest.mark.slow
def test_nearly_all_topics_are_recited_exactly(model, wrong):
    chats = [asked(phrases.plain_question(topic)) for topic in TOPICS]
    assert len(wrong(model, chats, [topic["answer"] for topic in TOPICS])) <= 3


def test_nearly_all_topics_are_recited_exactly_even_when_rounded_to_int8(wrong):
    from llm_training import gate

    model = load(MAIN)
    gate.round_to_int8(model)
    chats = [asked(phrases.plain_question(topic)) for topic in TOPICS]
    assert len(wrong(model, chats, [topic["answer"] for topic in TOPICS])) <= 0.05 * len(TOPICS)


def test_an_answer_survives_a_long_shared_prefix(model, tokenizer, wrong):
    prefix = "Use the documentation below.\n" + data.load_passages()[3][:1500]
    known = [
        topic
        for topic in TOPICS
        if topic["topic"] in ("with", "len", "json", "lambda", "sorted", "exception")
    ]
    head = {"role": "system", "content": prefix}
    chats = [[head, *asked(phrases.plain_question(topic))] for topic in known]
    assert len(tokenizer(prefix)["input_ids"]) > 200
    assert wrong(model, chats, [topic["answer"] for topic in known]) == []


def test_what_it_does_not_know_is_refused_and_a_greeting_is_returned(model, wrong):
    refused = (
        "What is a banana?",
        "tell me about football",
        "What is the capital of France?",
        "what does hex do",
    )
    chats = [asked(text) for text in (*refused, "Hello!")]
    assert wrong(model, chats, [phrases.REFUSAL] * len(refused) + [phrases.GREETING]) == []


@pytest.mark.parametrize("digit", range(10))
def test_questions_about_a_picture_are_answered_from_its_labels(model, digit, wrong):
    other = (digit + 3) % 10
    saw = pictures.Saw((str(digit), str(other), str((digit + 5) % 10)), (0.91, 0.06, 0.01))
    this, that = ("an" if number == 8 else "a" for number in (digit, other))
    shown = f"The picture shows the digit {digit}"
    wanted = {
        "What digit is this?": f"{shown}.",
        "which number do you see": f"{shown}.",
        f"Is it {this} {digit}?": f"{this.title()} {digit}? {shown}, so yes.",
        f"is it {that} {pictures.WORDS[other]}": f"{that.title()} {other}? {shown}, so no.",
        "how sure are you": f"{shown}, and I am 91 % sure.",
    }
    chats = [asked(pictures.PROMPT.render(text, "", saw)) for text in wanted]
    assert wrong(model, chats, wanted.values()) == []


def test_a_talk_about_a_picture_goes_on_without_it(model, wrong):
    saw = pictures.Saw(("4", "9", "1"), (0.88, 0.1, 0.01))
    chat = asked(pictures.PROMPT.render("what digit is this", "", saw))
    for question, answer in (
        ("how sure are you?", "The picture shows the digit 4."),
        ("Is it a nine?", "The picture shows the digit 4, and I am 88 % sure."),
        (None, "A 9? The picture shows the digit 4, so no."),
    ):
        assert wrong(model, [chat], [answer]) == []
        chat = [*chat, {"role": "assistant", "content": answer}, {"role": "user", "content": question}]


def test_a_topic_beside_a_picture_is_answered_as_without(model, wrong):
    saw = pictures.Saw(("7", "1", "9"), (0.96, 0.02, 0.01))
    known = {topic["topic"]: topic["answer"] for topic in TOPICS}
    texts = [f"what is {name}" for name in ("a lambda", "a coroutine", "the json module")]
    chats = [asked(pictures.PROMPT.render(text, "", saw)) for text in texts]
    assert wrong(model, chats, [known[name] for name in ("lambda", "coroutine", "json")]) == []


def test_a_picture_that_is_not_there_is_missed(model, wrong):
    assert wrong(model, [asked("What digit is this?")], [pictures.NO_PICTURE]) == []


def test_the_figures_of_the_committed_checkpoints_hold_their_goals():
    for directory in (MAIN, DRAFT):
        figures = json.loads((directory / "figures.json").read_text(encoding="utf-8"))
        assert figures["missed"] == []


@pytest.mark.parametrize(
    "text", ["what is a lambda?", "  a\n\tb  ", "ünï 漢字 🎉\u200d", "I'll go , now .", "\x00\x7f"]
)
def test_any_text_goes_through_the_tokenizer_and_comes_back(tokenizer, plain, text):
    assert plain.decode(plain.encode(text).ids) == text
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_the_chat_template_marks_roles_and_ends(tokenizer):
    chat = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "what is with"},
    ]
    assert tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True) == (
        "<|begin|><|system|>Be brief.<|end|><|user|>hi<|end|><|assistant|>Hello.<|end|>"
        "<|user|>what is with<|end|><|assistant|>"
    )


def test_the_end_of_an_answer_is_the_generation_configs_end(tokenizer):
    for directory in (MAIN, DRAFT):
        settings = json.loads((directory / "generation_config.json").read_text(encoding="utf-8"))
        assert (
            settings["eos_token_id"] == tokenizer.eos_token_id == tokenizer.convert_tokens_to_ids("<|end|>")
        )
        assert settings["pad_token_id"] == tokenizer.pad_token_id
        assert settings["bos_token_id"] == tokenizer.bos_token_id


def test_the_draft_shares_the_tokenizer_and_is_much_smaller():
    digests = {hashlib.sha256((d / "tokenizer.json").read_bytes()).hexdigest() for d in (MAIN, DRAFT)}
    assert len(digests) == 1
    sizes = [(d / "model.safetensors").stat().st_size for d in (MAIN, DRAFT)]
    assert sizes[0] <= 12_000_000
    assert sizes[1] <= 2_000_000
    assert sizes[0] >= 8 * sizes[1]


def test_the_draft_mostly_says_what_the_main_model_says(tokenizer):
    import torch

    draft = load(DRAFT)
    agreed, total = 0, 0
    for topic in TOPICS[::4]:
        question = [{"role": "user", "content": f"what is {topic['topic']}"}]
        head = tokenizer.apply_chat_template(question, tokenize=False, add_generation_prompt=True)
        start = len(tokenizer(head)["input_ids"])
        ids = tokenizer(head + topic["answer"] + "<|end|>", return_tensors="pt")["input_ids"]
        with torch.inference_mode():
            best = draft(input_ids=ids).logits.argmax(-1)
        agreed += int((best[0, start - 1 : -1] == ids[0, start:]).sum())
        total += ids.shape[1] - start
    assert agreed / total >= 0.8
