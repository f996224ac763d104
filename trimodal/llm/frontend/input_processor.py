"""Turns a request into tokens within the budgets of its tier; may trim a chat that is too long.

Tokens are counted on the very prompt that the engine gets, chat template included.
"""

from __future__ import annotations

import json
import logging
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial

from trimodal.errors import InvalidArgument, SettingsError
from trimodal.llm.detokenizer import context_of
from trimodal.llm.engines.protocol import EngineInfo, Sampling
from trimodal.llm.frontend.public_prompts import public_tokens, read_public_prompts
from trimodal.llm.frontend.request_state import RequestState
from trimodal.llm.request.outputs import Sink
from trimodal.llm.request.request import GenerationRequest
from trimodal.llm.request.terms import RETAINED, Terms
from trimodal.llm.scheduler.admission import Admission
from trimodal.llm.settings import LlmSettings
from trimodal.llm.structured.families import AnswerReader
from trimodal.llm.tiers import Tier, Tiers, read_tiers
from trimodal.llm.tokenizer import ByteTokenizer, CheckpointTokenizer, Message, Tokenizer

logger = logging.getLogger(__name__)
Count = Callable[[GenerationRequest], "list[int]"]
Size = Callable[[str], int]
_PROMPT_END = 16  # tokens, among which thoughts begin if the template begins them
_ANSWER_SHARE = 8  # of the model's length a trimmed talk leaves an eighth to an answer of default length


@dataclass(frozen=True)
class Prompt:
    """A request within its budget, its tokens, and what it lost: JSON, "" when nothing."""

    request: GenerationRequest
    ids: list[int]
    trimmed: str = ""


def within_output(request: GenerationRequest, tier: Tier, name: str) -> GenerationRequest:
    """The request with an answer that its tier allows; only a default length is shortened.

    Raises:
        InvalidArgument: the client asked for more.
    """
    wanted, most = request.sampling.max_tokens, tier.max_output_tokens
    if most is None or wanted <= most:
        return request
    if not request.default_length:
        raise InvalidArgument(f"max_tokens is {wanted}: tier '{name}' allows at most {most}")
    return request.within(most)


def priority_of(terms: Terms, tier: Tier, name: str) -> int:
    """The request's priority. Raises InvalidArgument: it asks for more than its tier gives."""
    wanted, most = terms.priority, tier.priority
    if wanted is None:
        return most
    if wanted > most:
        raise InvalidArgument(f"priority is {wanted}: tier '{name}' allows at most {most} (lower is fine)")
    return wanted


def retention_of(terms: Terms, tier: Tier) -> float:
    """Share of its room that a talk keeps when it is trimmed; 0: it is refused."""
    if terms.retention is None:
        return 0.0 if tier.trim == "refuse" else RETAINED
    return terms.retention


def fit(
    request: GenerationRequest, tier: Tier, limit: int, token_ids: Count, size: Size, answer: int = 0
) -> Prompt:
    """The request with a prompt of at most `limit` tokens, if it may be trimmed so far.

    One that cannot be made to fit is given back whole: its size is refused by admission.

    Args:
        token_ids: of a whole prompt. size: tokens of one message's content alone.
        answer: tokens of the limit that an answer is to have, if what may be trimmed is enough for it.
    """
    ids, messages = token_ids(request), request.messages
    retention = retention_of(request.terms, tier)
    if len(ids) <= limit - answer or not retention or messages is None:
        return Prompt(request, ids)
    groups = _expendable(messages)
    if not groups:
        return Prompt(request, ids)
    sizes = [size(message["content"]) for message in messages]
    fixed = sum(one for one, message in zip(sizes, messages, strict=True) if message["role"] == "system")
    cuts = _cuts(groups, sizes, int((1 - retention) * (limit - answer - fixed)))
    # Fewer messages are fewer tokens: the least cut that fits lies between one that does not and one that
    # does. A prompt of hundreds of kB takes long to tokenize, so the search begins where it is likely to end.
    low, high, step, best = 0, len(cuts) + 1, 1, Prompt(request, ids)
    at = 1 + bisect_left(cuts, _guess(sizes, groups, len(ids), limit - answer))
    while low + 1 < high:
        prompt = _without(request, groups[: cuts[at - 1]], ids, token_ids)
        if prompt and len(prompt.ids) <= (limit if at == len(cuts) else limit - answer):
            high, best = at, prompt
        else:
            low = at
        known = low > 0 and high <= len(cuts)
        at = (low + high) // 2 if known else (high - step if high == at else low + step)
        at, step = max(low + 1, min(at, high - 1)), step * 2
    return best


def _cuts(groups: Sequence[Sequence[int]], sizes: Sequence[int], step: int) -> list[int]:
    """How many groups may go: only so many as pass another multiple of `step` tokens, or all.

    A talk comes whole with each question. Cut by its length alone it would begin elsewhere each time, and
    its prefix would never be found again; so it keeps its beginning until another step does not fit.
    """
    cuts: list[int] = []
    position, passed, step = 0, 0, max(1, step)
    for count, group in enumerate(groups, 1):
        position += sum(sizes[message] for message in group)
        if position // step > passed or count == len(groups):
            passed = position // step
            cuts.append(count)
    return cuts


def _without(
    request: GenerationRequest, groups: Sequence[Sequence[int]], ids: Sequence[int], token_ids: Count
) -> Prompt | None:
    """The request without some messages; None: the chat template refuses what would be left."""
    lost = {index for group in groups for index in group}
    kept = tuple(message for index, message in enumerate(request.messages or ()) if index not in lost)
    shorter = replace(request, messages=kept)
    try:
        shorter_ids = token_ids(shorter)
    except InvalidArgument:
        return None  # the client sent a chat that it takes: the error would not be the client's
    cut = {"messages": len(lost), "tokens": len(ids) - len(shorter_ids)}
    return Prompt(shorter, shorter_ids, json.dumps(cut))


def _guess(sizes: Sequence[int], groups: Sequence[Sequence[int]], tokens: int, limit: int) -> int:
    """How many groups have to go, as far as the messages' own sizes tell; 1 at least."""
    frame = max(0, tokens - sum(sizes)) / len(sizes)  # what the template puts around each
    for index, group in enumerate(groups):
        tokens -= sum(sizes[message] for message in group)
        if tokens - frame * sum(map(len, groups[: index + 1])) <= limit:
            return index + 1
    return max(1, len(groups))


def _expendable(messages: Sequence[Message]) -> list[list[int]]:
    """Indexes of each turn that may go, the oldest first: never a system message nor the last turn."""
    users = [index for index, message in enumerate(messages) if message["role"] == "user"]
    end = users[-1] if users else len(messages) - 1
    turns: list[list[int]] = []
    for index in range(end):
        role = messages[index]["role"]
        if role == "system":
            continue
        if role == "user" or not turns:
            turns.append([])
        turns[-1].append(index)
    return turns


class InputProcessor:
    """Tokenises requests and applies their tiers.

    Raises:
        OperatorError: the tokenizer, the tiers' file or a public prompt cannot be used.
    """

    def __init__(self, settings: LlmSettings) -> None:
        self._settings = settings
        self.tokenizer: Tokenizer = (
            ByteTokenizer() if settings.engine == "fake" else CheckpointTokenizer(settings.artefact_directory)
        )
        tiers = settings.beside_config(settings.tiers)
        self._tiers = read_tiers(tiers) if tiers else Tiers()
        self._rendered_on = date.today()  # local, as the template has it
        self.public_prompts = read_public_prompts(settings, self.tokenizer)
        self._defaults = settings.sampling_defaults.model_dump()

    def process(
        self, request: GenerationRequest, sink: Sink, admission: Admission, request_id: str = ""
    ) -> RequestState:
        """The state of a new request, its prompt within budget.

        Raises:
            InvalidArgument: it could never be served; names the field and the limit.
        """
        arrived = time.perf_counter()
        terms = request.terms
        tier, name = self._tiers.named(terms.tier), terms.tier or self._tiers.default
        priority = priority_of(terms, tier, name)
        salt = self._salt(terms)
        request = self._without_defaults(within_output(request, tier, name), admission.info, salt)
        most = self._settings.max_prompt_tokens
        limit = min(most, tier.max_prompt_tokens or most)
        # A default length gives way to the prompt, one that the client named does not.
        asked, whole = request.sampling.max_tokens, admission.room(0)
        least = 1 if request.default_length else asked
        wished = max(least, min(asked, whole // _ANSWER_SHARE))
        room = min(limit, whole - least)
        answer = max(0, room - (whole - wished))
        prompt = fit(request, tier, room, self._tokens, self._size, answer)
        tokens = len(prompt.ids)
        request = prompt.request.within(admission.room(tokens))
        if tokens > limit < most:
            raise InvalidArgument(f"the prompt has {tokens} tokens: tier '{name}' allows at most {limit}")
        admission.check_tokens("prompt_token_ids", request.prompt_token_ids)
        admission.check_size(tokens, request.sampling.max_tokens)
        admission.check_sampling(request.sampling)
        if salt:
            self._check_salted(request.sampling, admission.info)
        state = RequestState(
            request, prompt.ids, sink, arrived, request_id, tier, name, priority, prompt.trimmed, salt
        )
        if not terms.cache_salt:
            state.public_tokens = public_tokens(prompt.ids, self.public_today())
        templated = self._settings.apply_chat_template and self.tokenizer.has_chat_template
        is_chat = request.is_templated(templated) and not request.prompt_token_ids
        if is_chat:
            state.make_reader = partial(self._reader, request, prompt.ids)
        if not is_chat or request.rendering.continue_final_message:
            state.context = context_of(prompt.ids, self.tokenizer)
        return state

    def public_today(self) -> Iterable[list[int]]:
        """Tokens of the public prompts, rendered again on another day where the chat template writes it.

        The day's first request then makes them public, or who fills an empty cache. Files that cannot be used
        any more: as they were.
        """
        today = date.today()
        if self.public_prompts and self.tokenizer.is_dated and self._rendered_on != today:
            self._rendered_on = today
            try:
                self.public_prompts = read_public_prompts(self._settings, self.tokenizer)
            except SettingsError as error:
                logger.warning("public prompts stay as they were rendered before %s: %s", today, error)
        return self.public_prompts.values()

    def _reader(self, request: GenerationRequest, ids: list[int]) -> AnswerReader | None:
        """What tells thoughts and calls of functions from the words of an answer; None: nothing."""
        family, free, tools = self._settings.family, request.form.free, request.tools
        called = tools.offered if tools and free and not request.sampling.grammar else ()
        names = [one["function"]["name"] for one in called]
        end = self.tokenizer.decode_whole(ids[-_PROMPT_END:]) if family.thinking else ""
        return family.reader(end, thinks=free, names=names)

    def _salt(self, terms: Terms) -> str:
        """What keeps the request's prefix from others'; "": nothing does."""
        tenant = terms.tenant if self._settings.prefix_cache_scope == "tenant" else ""
        if not self._settings.enable_prefix_caching or not (tenant or terms.cache_salt):
            return ""
        return json.dumps([tenant, terms.cache_salt]) if terms.cache_salt else tenant

    def _check_salted(self, sampling: Sampling, info: EngineInfo) -> None:
        """Raises InvalidArgument where it asks for what keeps no prefix from others'."""
        value = getattr(sampling, info.unsalted) if info.unsalted else None
        if info.unsalted and value != getattr(Sampling(1), info.unsalted):
            raise InvalidArgument(
                f"{info.unsalted} is {value:g}: this engine cannot keep such prompts from other tenants' "
                "(the operator may set prefix_cache_scope to shared, or enable_prefix_caching to false)"
            )

    def _without_defaults(self, request: GenerationRequest, info: EngineInfo, salt: str) -> GenerationRequest:
        """The request without what the checkpoint asks for and this engine does not honour."""
        sampling, plain = request.sampling, Sampling(1)
        lost = {
            name: getattr(plain, name)
            for name, value in self._defaults.items()
            if (name in info.unsupported or (salt and name == info.unsalted))
            and getattr(sampling, name) == value
        }
        return replace(request, sampling=replace(sampling, **lost)) if lost else request

    def _tokens(self, request: GenerationRequest) -> list[int]:
        return request.token_ids(self.tokenizer, self._settings.apply_chat_template)

    def _size(self, content: str) -> int:
        return len(self.tokenizer.encode(content))
