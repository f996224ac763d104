"""Reads a Hugging Face checkpoint of a causal language model.

Loads the torch model, renders and encodes prompts, copies the tokenizer files and
tells the shapes.
"""

from __future__ import annotations

import logging
import os
import shutil
import warnings
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from typing import Any

from steps.artefact import read_json, reason

from trimodal.errors import ArtefactError
from trimodal.files import read_at_most
from trimodal.llm.chat_template import CHAT_TEMPLATE, ChatTemplate

GENERATION_CONFIG = "generation_config.json"  # says how answers are sampled
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


def quiet() -> None:
    """Silences what the libraries print and send home; call it before they are imported."""
    os.environ.update(
        HF_HUB_OFFLINE="1",  # The checkpoint is here by now; nothing else is to be fetched.
        HF_HUB_DISABLE_PROGRESS_BARS="1",
        TRANSFORMERS_VERBOSITY="error",
        TOKENIZERS_PARALLELISM="false",
        TQDM_DISABLE="1",
        NNCF_CI="1",  # Keeps nncf from sending usage figures.
    )
    warnings.filterwarnings("ignore")
    for name in ("nncf", "optimum", "openvino_tokenizers", "torch"):
        logging.getLogger(name).setLevel(logging.ERROR)


def check_causal(directory: Path, source: str) -> None:
    """Refuses early, without torch, what is not a causal language model, with an ArtefactError."""
    architectures = list(read_config(directory, source).get("architectures") or [])
    if not any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in architectures):
        found = ", ".join(architectures) or "none named"
        raise ArtefactError(f"{source} is not a causal language model (architectures: {found})")
    check_weights(directory, source)
    read_json(directory / GENERATION_CONFIG)  # Damaged, it would end the build after the weights are loaded.


def read_config(directory: Path, source: str) -> dict[str, Any]:
    """config.json of the checkpoint that the user named `source`. Raises: ArtefactError when unreadable."""
    if config := read_json(directory / "config.json"):
        return config
    raise ArtefactError(f"{source} has no config.json, or an empty one: not a Hugging Face checkpoint")


def check_weights(directory: Path, source: str) -> None:
    """Raises: ArtefactError where the directory has no weights."""
    if not any(path.suffix in (".safetensors", ".bin") for path in directory.iterdir()):
        raise ArtefactError(f"{source} holds no weights (*.safetensors or *.bin)")


def refuse_missing(name: str, loading: dict[str, Any], but: Iterable[str] = ()) -> None:
    """Refuses what transformers made up: of weights that are not there it warns, which is not shown here.

    The built engine would agree with it. `loading` is what `output_loading_info` gives, `but` what may lack.
    Raises: ArtefactError.
    """
    if missing := sorted(set(loading["missing_keys"]) - set(but)):
        raise ArtefactError(f"{name} lacks weights: {', '.join(missing[:3])}")


def unreadable(directory: Path, error: Exception) -> ArtefactError:
    """What transformers raised, in a sentence: each format of weights has errors of its own."""
    return ArtefactError(f"{directory.name} cannot be loaded by transformers: {reason(error)}")


def copy_files(directory: Path, tokenizer: Any, names: Iterable[str], into: Path) -> None:
    """Copies those files that are there, as they are, and writes a tokenizer that is not."""
    if not (directory / "tokenizer.json").is_file():
        tokenizer.save_pretrained(into)
    for name in names:
        if (directory / name).is_file():
            shutil.copyfile(directory / name, into / name)


def read_texts(path: Path, *, at_least: int) -> list[str]:
    """The paragraphs of a text file, or its lines where it has no blank line between them.

    Raises:
        ArtefactError: not readable as UTF-8 text, or fewer than `at_least`.
    """
    try:
        content = read_at_most(path).decode().strip().replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ArtefactError(f"{path} cannot be read as UTF-8 text ({type(error).__name__})") from None
    parts = content.split("\n\n") if "\n\n" in content else content.split("\n")
    texts = [part.strip() for part in parts if part.strip()]
    if len(texts) < at_least:
        raise ArtefactError(f"{path} holds {len(texts)} lines or paragraphs: at least {at_least} are needed")
    return texts


def dimensions(value: Callable[[str], Any], name: str) -> dict[str, int]:
    """The dimensions that a serving engine relies on, by `value` of a key of the text configuration.

    Raises:
        ArtefactError: the checkpoint `name` lacks one, or it is no number.
    """

    def size(key: str, otherwise: Any = None) -> int:
        try:
            return int(value(key) or otherwise)
        except (TypeError, ValueError):
            raise ArtefactError(f"config.json of {name} lacks or garbles {key}") from None

    heads, hidden = size("num_attention_heads"), size("hidden_size")
    return {
        "hidden_size": hidden,
        "num_hidden_layers": size("num_hidden_layers"),
        "num_attention_heads": heads,
        "num_key_value_heads": size("num_key_value_heads", heads),
        "head_dim": size("head_dim", hidden // heads),
        "vocab_size": size("vocab_size"),
        "max_position_embeddings": size("max_position_embeddings"),
    }


def end_ids(values: Iterable[Any]) -> list[int]:
    """All ids among what several files say of `eos_token_id`: a number, a list, or nothing."""
    lists = (each if isinstance(each, list) else [] if each is None else [each] for each in values)
    return sorted(set(chain.from_iterable(lists)))


class Checkpoint:
    """The torch model and tokenizer of one directory.

    Attributes:
        model: transformers' model in FP32, in evaluation mode.
        config: its text configuration.
    """

    def __init__(self, directory: Path) -> None:
        """Raises: ArtefactError: a missing tokenizer, an unknown architecture, damaged weights, no memory."""
        from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

        self.directory = directory
        try:
            self.tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True)
            self.config = AutoConfig.from_pretrained(directory, local_files_only=True).get_text_config()
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                directory, dtype="float32", local_files_only=True, output_loading_info=True
            )
        except Exception as error:  # Of many kinds.
            raise unreadable(self.directory, error) from None
        self.model, loading = loaded
        refuse_missing(directory.name, loading)
        self.model.eval()
        if not self.tokenizer.is_fast:
            raise ArtefactError(f"{directory.name} has no fast tokenizer, and serving reads tokenizer.json")

    @property
    def template(self) -> str:
        """The chat template's source; of several the default one; empty: there is none."""
        template = self.tokenizer.chat_template
        if isinstance(template, dict):
            template = template.get("default") or next(iter(template.values()))
        return template or ""

    @property
    def has_chat_template(self) -> bool:
        return bool(self.template)

    @property
    def random_weights(self) -> bool:
        """Made by random_checkpoint.py: its tokens hang on rounding, so agreement says little."""
        return bool(getattr(self.config, "random_weights", False))

    def encode_prompt(self, prompt: str) -> list[int]:
        """Token ids of one user's message, through the chat template where there is one."""
        if not self.has_chat_template:
            return self.encode(prompt)
        # As the server renders it, so that the check sees the prompts that will be answered.
        tokens = self.tokenizer.special_tokens_map
        text = ChatTemplate(self.template).render([{"role": "user", "content": prompt}], (), tokens)
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def encode(self, text: str) -> list[int]:
        return list(self.tokenizer(text)["input_ids"])

    def shapes(self) -> dict[str, int]:
        """As `dimensions` of the configuration."""
        return dimensions(lambda name: getattr(self.config, name, None), self.directory.name)

    def special_ids(self) -> dict[str, Any]:
        """`eos_token_ids` (every id that ends an answer), `bos_token_id` and `pad_token_id`, where known."""
        owners = (self.config, self.tokenizer)
        ends = [getattr(each, "eos_token_id", None) for each in owners]
        # Many checkpoints have no generation config: the config's and the tokenizer's ids remain.
        ends.append(read_json(self.directory / GENERATION_CONFIG).get("eos_token_id"))
        return {
            "eos_token_ids": end_ids(ends),
            "bos_token_id": self.tokenizer.bos_token_id,
            "pad_token_id": self.tokenizer.pad_token_id,
        }

    def described(self) -> dict[str, Any]:
        """What a manifest's `extra` says of it."""
        return self.special_ids() | {
            "has_chat_template": self.has_chat_template,
            "random_weights": self.random_weights,
        }

    def write_tokenizer(self, directory: Path) -> None:
        """Copies the tokenizer's files, and how to sample, as they are; a template gets a file of its own."""
        copy_files(self.directory, self.tokenizer, (*TOKENIZER_FILES, GENERATION_CONFIG), directory)
        if self.has_chat_template:
            (directory / CHAT_TEMPLATE).write_text(self.template, encoding="utf-8")
