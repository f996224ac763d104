"""Reads a Hugging Face checkpoint of a causal language model.

Loads the torch model, renders and encodes prompts, copies the tokenizer files and
tells the shapes.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

from trimodal.errors import ArtefactError

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
CHAT_TEMPLATE = "chat_template.jinja"


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
    """Refuses early, without torch, what is not a causal language model.

    Raises:
        ArtefactError: no readable config.json, no weights, or another architecture.
    """
    try:
        config = json.loads((directory / "config.json").read_text())
        architectures = list(config.get("architectures") or [])
    except (OSError, ValueError, AttributeError):
        raise ArtefactError(
            f"{source} holds no readable config.json: not a Hugging Face checkpoint"
        ) from None
    if not any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in architectures):
        found = ", ".join(architectures) or "none named"
        raise ArtefactError(f"{source} is not a causal language model (architectures: {found})")
    if not any(path.suffix in (".safetensors", ".bin") for path in directory.iterdir()):
        raise ArtefactError(f"{source} holds no weights (*.safetensors or *.bin)")


def read_texts(path: Path, *, at_least: int) -> list[str]:
    """The paragraphs of a text file, or its lines where it has no blank line between them.

    Raises:
        ArtefactError: not readable as UTF-8 text, or fewer than `at_least`.
    """
    try:
        content = path.read_text(encoding="utf-8").strip().replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ArtefactError(f"{path} cannot be read as UTF-8 text ({type(error).__name__})") from None
    parts = content.split("\n\n") if "\n\n" in content else content.split("\n")
    texts = [part.strip() for part in parts if part.strip()]
    if len(texts) < at_least:
        raise ArtefactError(f"{path} holds {len(texts)} lines or paragraphs: at least {at_least} are needed")
    return texts


class Checkpoint:
    """The torch model and tokenizer of one directory.

    Attributes:
        model: transformers' model in evaluation mode: in FP32 on the CPU, or as `load` was asked.
        config: its text configuration.
    """

    def __init__(self, directory: Path, *, load: bool = True) -> None:
        """Without `load`, the weights wait until `load` is called: a builder may need the memory first."""
        from transformers import AutoConfig, AutoTokenizer

        self.directory = directory
        self.model: Any = None
        try:
            self.tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True)
            self.config = AutoConfig.from_pretrained(directory, local_files_only=True).get_text_config()
        except Exception as error:  # A missing tokenizer, an unknown architecture, …
            raise self._unreadable(error) from None
        if not self.tokenizer.is_fast:
            raise ArtefactError(f"{directory.name} has no fast tokenizer, and serving reads tokenizer.json")
        if load:
            self.load()

    def load(self, dtype: str = "float32", device_map: str | None = None) -> None:
        """Loads the weights; `dtype` "auto" is the checkpoint's own, `device_map` as transformers has it.

        Raises:
            ArtefactError: damaged weights, or no memory for them.
        """
        from transformers import AutoModelForCausalLM

        try:
            self.model = AutoModelForCausalLM.from_pretrained(
                self.directory, dtype=dtype, device_map=device_map, local_files_only=True
            ).eval()
        except Exception as error:  # Each format of weights has its own errors.
            raise self._unreadable(error) from None

    def _unreadable(self, error: Exception) -> ArtefactError:
        reason = str(error).strip().split("\n")[0][:200]
        return ArtefactError(f"{self.directory.name} cannot be loaded by transformers: {reason}")

    @property
    def has_chat_template(self) -> bool:
        return bool(self.tokenizer.chat_template)

    @property
    def random_weights(self) -> bool:
        """Made by random_checkpoint.py: its tokens hang on rounding, so agreement says little."""
        return bool(getattr(self.config, "random_weights", False))

    def encode_prompt(self, prompt: str) -> list[int]:
        """Token ids of one user's message, through the chat template where there is one."""
        if not self.has_chat_template:
            return self.encode(prompt)
        message = [{"role": "user", "content": prompt}]
        text = self.tokenizer.apply_chat_template(message, add_generation_prompt=True, tokenize=False)
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def encode(self, text: str) -> list[int]:
        return list(self.tokenizer(text)["input_ids"])

    def shapes(self) -> dict[str, int]:
        """The dimensions that a serving engine relies on."""
        config, heads = self.config, self.config.num_attention_heads
        return {
            "hidden_size": config.hidden_size,
            "num_hidden_layers": config.num_hidden_layers,
            "num_attention_heads": heads,
            "num_key_value_heads": getattr(config, "num_key_value_heads", None) or heads,
            "head_dim": getattr(config, "head_dim", None) or config.hidden_size // heads,
            "vocab_size": config.vocab_size,
            "max_position_embeddings": config.max_position_embeddings,
        }

    def special_ids(self) -> dict[str, Any]:
        """`eos_token_ids` (every id that ends an answer), `bos_token_id` and `pad_token_id`, where known."""
        ends: set[int] = set()
        owners = (self.config, self.tokenizer)
        for value in (*self._generation_ends(), *(getattr(each, "eos_token_id", None) for each in owners)):
            ends.update(value if isinstance(value, list) else [] if value is None else [value])
        return {
            "eos_token_ids": sorted(ends),
            "bos_token_id": self.tokenizer.bos_token_id,
            "pad_token_id": self.tokenizer.pad_token_id,
        }

    def _generation_ends(self) -> list[Any]:
        try:
            settings = json.loads((self.directory / "generation_config.json").read_text(encoding="utf-8"))
            return [settings.get("eos_token_id")]
        except (OSError, ValueError, AttributeError):
            return []  # Many checkpoints have none: the config's and the tokenizer's ids remain.

    def write_tokenizer(self, directory: Path) -> None:
        """Copies the tokenizer's files as they are; the chat template always gets a file of its own."""
        if not (self.directory / "tokenizer.json").is_file():
            self.tokenizer.save_pretrained(directory)
        for name in TOKENIZER_FILES:
            if (self.directory / name).is_file():
                shutil.copyfile(self.directory / name, directory / name)
        if self.has_chat_template:
            template = self.tokenizer.chat_template
            if isinstance(template, dict):
                template = template.get("default") or next(iter(template.values()))
            (directory / CHAT_TEMPLATE).write_text(template, encoding="utf-8")
