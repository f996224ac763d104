"""Says which knobs a pipeline has, between which values each is searched, and which settings are near.

Triton's own knobs come from the configuration; the parameters of our models from their settings
classes, which also refuse values that do not fit together before the server is asked.
"""

from __future__ import annotations

import itertools
import random
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from trimodal.doctor.models import settings_class
from trimodal.errors import SettingsError
from trimodal.llm.settings import ReadBy
from trimodal.repository import Model
from trimodal.settings import parse_parameters
from trimodal.tune import fields

Setting = dict[str, str]
"""`model.knob` → value as text."""

# Parameters that change speed and memory, not answers: searched without being named. Each with the values
# that are tried beside the present one; cores: powers of two up to their number; literal: all that there are;
# double: what clients count on, which never shrinks (0: as much as there is room for).
SEARCHED: dict[str, tuple[str, ...] | Literal["cores", "literal", "double"]] = {
    "threads": "cores",
    "intra_op_threads": "cores",
    "max_num_seqs": ("4", "8", "16", "32", "64"),
    "max_num_batched_tokens": ("64", "128", "256", "512", "1024", "2048"),
    "num_kv_blocks": "double",
    "speculation": "literal",
    "max_batch_windows": ("2", "4", "8", "16"),
    "step_s": ("0.3", "0.5", "0.8", "1.2"),
    "max_windows_in_flight": ("4", "8", "16", "32"),
}
_DELAYS = ("0", "200", "1000", "3000")


@dataclass(frozen=True)
class Knob:
    """One thing to turn, and the values that are tried, in their order."""

    model: str
    name: str
    choices: tuple[str, ...]

    @property
    def label(self) -> str:
        return f"{self.model}.{self.name}"

    @property
    def is_numeric(self) -> bool:
        return all(_number(choice) is not None for choice in self.choices)

    def __str__(self) -> str:
        return f"{self.label}={','.join(self.choices)}"


class Pipeline:
    """The models that answer a request together, as they are configured now.

    Args:
        main: the model that is asked; several have a + between.
        models: it and what it runs or calls; `config` of each is the live one.
    """

    def __init__(self, main: str, models: Mapping[str, Model]) -> None:
        self.main, self.models = main, models
        self._settings = {name: settings_class(model) for name, model in models.items()}

    def defaults(self, cores: int) -> list[Knob]:
        """The knobs that are searched when none is named. The present value is always among the choices."""
        found = []
        for name, model in self.models.items():
            for knob, choices in {**self._tritons(model), **self._parameters(model, cores)}.items():
                present = self.present(name, knob)
                every = _ordered({*choices, present})
                if len(every) > 1:
                    found.append(Knob(name, knob, every))
        return found

    def parse(self, text: str) -> Knob:
        """`[model.]knob=a,b,c`. Raises: SettingsError naming what is known."""
        target, _, values = text.partition("=")
        if not values:
            raise SettingsError(f"--knob {text}: write it as model.knob=a,b,c")
        model, name = self.find(target.strip())
        knob = Knob(model, name, tuple(dict.fromkeys(part.strip() for part in values.split(","))))
        for value in knob.choices:
            if why := self.refusal({knob.label: value}, alone=True):
                raise SettingsError(f"--knob {text}: {why}")
        return knob

    def find(self, target: str) -> tuple[str, str]:
        """Model and knob of `model.knob`, or of a knob that only one model has. Raises: SettingsError."""
        model, dot, name = target.rpartition(".")
        if dot:
            if model not in self.models:
                raise SettingsError(f"no model '{model}' in this pipeline: it has {', '.join(self.models)}")
            if name not in self.known(model):
                raise SettingsError(
                    f"model {model} has no knob '{name}': it has {', '.join(self.known(model))}"
                )
            return model, name
        owners = [owner for owner in self.models if target in self.known(owner)]
        if self.main in owners and len(self.models[self.main].steps) == 0:
            return self.main, target
        if len(owners) != 1:
            which = " and ".join(f"{owner}.{target}" for owner in owners) or "no model here"
            raise SettingsError(f"which '{target}' is meant: {which}?")
        return owners[0], target

    def known(self, model: str) -> list[str]:
        """Every knob that can be named of a model."""
        one, cls = self.models[model], self._settings[model]
        if one.steps:
            return ["max_batch_size"]
        parameters = list(cls.model_fields) if cls else list(one.parameters)
        return [
            *fields.PATHS,
            *(name for name in parameters if name not in ("version_directory", "operator_hash", "engine")),
        ]

    def present(self, model: str, knob: str) -> str:
        """The value now: as configured, else the default of the settings class."""
        config, cls = self.models[model].config, self._settings[model]
        value = fields.read(config, knob)
        if value is None and cls and knob in cls.model_fields:
            default = cls.model_fields[knob].default
            value = str(default).lower() if isinstance(default, bool) else str(default)
        return value or ""

    def start(self, knobs: Iterable[Knob]) -> Setting:
        return {knob.label: self.present(knob.model, knob.name) for knob in knobs}

    def configs(self, values: Setting) -> dict[str, Any]:
        """Model → its configuration with these values; of models with a value among them."""
        changed: dict[str, Any] = {}
        for label, value in values.items():
            model, _, name = label.rpartition(".")
            if model not in changed:
                changed[model] = type(self.models[model].config)()
                changed[model].CopyFrom(self.models[model].config)
            if value != self.present(model, name):
                fields.put(changed[model], name, value)
        return changed

    def refusal(self, values: Setting, *, alone: bool = False) -> str:
        """One sentence on why these values cannot go together; empty: nothing is known against them.

        Args:
            alone: a value by itself: what it lacks of others is not held against it.
        """
        try:
            configs = self.configs(values)
        except SettingsError as error:
            return str(error)
        for name, config in configs.items():
            cls = self._settings[name]
            if cls is None:
                continue
            parameters = {key: value.string_value for key, value in config.parameters.items()}
            try:
                parse_parameters(cls, parameters, source=name)
            except SettingsError as error:
                return str(error)
        return "" if alone else self._sizes(configs)

    def _sizes(self, configs: Mapping[str, Any]) -> str:
        def config_of(name: str) -> Any:
            return configs.get(name, self.models[name].config)

        for name, model in self.models.items():
            most = config_of(name).max_batch_size
            for step in model.steps:
                if step in self.models and 0 < config_of(step).max_batch_size < most:
                    return f"max_batch_size of step {step} is below that of {name}"
        return ""

    def _tritons(self, model: Model) -> dict[str, tuple[str, ...]]:
        """Triton's own knobs of a model that gathers batches. Its limit only grows: clients count on it."""
        config = model.config
        found: dict[str, tuple[str, ...]] = {}
        keeps_streams = config.HasField("sequence_batching") or not config.max_batch_size
        if model.steps or keeps_streams or config.model_transaction_policy.decoupled:
            return found
        if config.HasField("dynamic_batching"):
            found["max_queue_delay_microseconds"] = _DELAYS
            found["max_batch_size"] = (str(config.max_batch_size * 2),)
        if len(config.instance_group) <= 1:
            found["instance_count"] = ("1", "2")
        return found

    def _parameters(self, model: Model, cores: int) -> dict[str, tuple[str, ...]]:
        cls = self._settings[model.name]
        if cls is None:
            return {}
        found = {}
        for name, wanted in SEARCHED.items():
            field = cls.model_fields.get(name)
            if field is None or not _is_read(model, field.metadata):
                continue
            choices: tuple[str, ...]
            if wanted == "cores":
                choices = _cores(cores)
            elif wanted == "literal":
                choices = typing.get_args(field.annotation)
            elif wanted == "double":
                present = self.present(model.name, name)
                choices = (str(2 * int(present)),) if present.isdecimal() and int(present) else ()
            else:
                choices = wanted
            if (
                name == "speculation"
                and not (model.version_directory / self.present(model.name, "draft_artefact")).is_dir()
            ):
                choices = tuple(choice for choice in choices if choice != "eagle3")
            found[name] = tuple(
                choice for choice in choices if not self.refusal({f"{model.name}.{name}": choice}, alone=True)
            )
        return found


class Space:
    """All settings that the knobs allow.

    Choices that are numbers are searched by their place in the order: what is near is alike. Words are not.
    """

    def __init__(self, knobs: Sequence[Knob]) -> None:
        self.knobs = tuple(knobs)

    def all(self) -> Iterator[Setting]:
        """Every setting, in order."""
        for values in itertools.product(*(knob.choices for knob in self.knobs)):
            yield dict(zip((knob.label for knob in self.knobs), values, strict=True))

    def draw(self, rng: random.Random) -> Setting:
        """Any setting."""
        return {knob.label: rng.choice(knob.choices) for knob in self.knobs}

    def neighbours(self, setting: Setting, rng: random.Random) -> list[Setting]:
        """Settings with one knob one step away (a word: any other one), in random order."""
        found = [
            {**setting, knob.label: value}
            for knob in self.knobs
            for value in _beside(knob, setting[knob.label])
        ]
        rng.shuffle(found)
        return found


def _beside(knob: Knob, value: str) -> list[str]:
    if value not in knob.choices or not knob.is_numeric:
        return [choice for choice in knob.choices if choice != value]
    at = knob.choices.index(value)
    return [knob.choices[near] for near in (at + 1, at - 1) if 0 <= near < len(knob.choices)]


def _is_read(model: Model, metadata: Iterable[object]) -> bool:
    """Whether the model's engine reads the parameter."""
    marks = [mark for mark in metadata if isinstance(mark, ReadBy)]
    return all(model.engine in mark.engines for mark in marks)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _cores(cores: int) -> tuple[str, ...]:
    return tuple(str(1 << power) for power in range(max(1, cores).bit_length()))


def _ordered(values: Iterable[str]) -> tuple[str, ...]:
    """Numbers by size, before words."""

    def key(value: str) -> tuple[bool, float, str]:
        number = _number(value)
        return number is None, number or 0.0, value

    return tuple(sorted(values, key=key))
