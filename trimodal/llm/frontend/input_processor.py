"""Turns a request into tokens within the budgets of its tier; may trim a chat that is too long.

Tokens are counted on the very prompt that the engine gets, chat template included.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

from trimodal.errors import InvalidArgument
from trimodal.llm.engines.protocol import EngineInfo, Sampling
from trimodal.llm.frontend.request_state import RequestState
from trimodal.llm.request.outputs import Sink
from trimodal.llm.request.request import GenerationRequest
from trimodal.llm.request.terms import Terms
from trimodal.llm.scheduler.admission import Admission
from trimodal.llm.settings import LlmSettings
from trimodal.llm.tiers import Tier, Tiers, Trim, read_tiers
from trimodal.llm.tokenizer import ByteTokenizer, CheckpointTokenizer, Message

Count = Callable[[GenerationRequest], "list[int]"]
Size = Callable[[str], int]


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


def fit(request: GenerationRequest, tier: Tier, limit: int, token_ids: Count, size: Size) -> Prompt:
    """The request with a prompt of at most `limit` tokens, if its tier's `trim` can make it so.

    One that cannot be made to fit is given back whole: its size is refused by admission.

    Args:
        token_ids: of a whole prompt. size: tokens of one message's content alone.
    """
    ids = token_ids(request)
    if len(ids) <= limit or tier.trim == "refuse" or request.messages is None:
        return Prompt(request, ids)
    groups = _expendable(request.messages, tier.trim)
    if not groups:
        return Prompt(request, ids)
    # Fewer messages are fewer tokens: the least cut that fits lies between one that does not and one that
    # does. A prompt of hundreds of kB takes long to tokenize, so the search begins where it is likely to end.
    low, high, step, best = 0, len(groups) + 1, 1, Prompt(request, ids)
    cut = _guess(request.messages, groups, len(ids), limit, size)
    while low + 1 < high:
        prompt = _without(request, groups[:cut], ids, token_ids)
        if prompt and len(prompt.ids) <= limit:
            high, best = cut, prompt
        else:
            low = cut
        known = low > 0 and high <= len(groups)
        cut = (low + high) // 2 if known else (high - step if high == cut else low + step)
        cut, step = max(low + 1, min(cut, high - 1)), step * 2
    return best


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


def _guess(
    messages: Sequence[Message], groups: Sequence[Sequence[int]], tokens: int, limit: int, size: Size
) -> int:
    """How many groups have to go, as far as the messages' own sizes tell; 1 at least."""
    sizes = [size(message["content"]) for message in messages]
    frame = max(0, tokens - sum(sizes)) / len(messages)  # what the template puts around each
    for index, group in enumerate(groups):
        tokens -= sum(sizes[message] for message in group)
        if tokens - frame * sum(map(len, groups[: index + 1])) <= limit:
            return index + 1
    return max(1, len(groups))


def _expendable(messages: Sequence[Message], trim: Trim) -> list[list[int]]:
    """Indexes of what may go, in the order in which it goes: never a system message nor the last turn."""
    users = [index for index, message in enumerate(messages) if message["role"] == "user"]
    end = users[-1] if users else len(messages) - 1
    passages = [[i] for i in range(end) if messages[i]["role"] == "tool"] if trim == "passages_first" else []
    first = {index for group in passages for index in group}
    turns: list[list[int]] = []
    for index in range(end):
        role = messages[index]["role"]
        if role == "system" or index in first:
            continue
        if role == "user" or not turns:
            turns.append([])
        turns[-1].append(index)
    return passages + turns


class InputProcessor:
    """Tokenises requests and applies their tiers.

    Raises:
        OperatorError: the tokenizer or the tiers' file cannot be used.
    """

    def __init__(self, settings: LlmSettings) -> None:
        self._settings = settings
        self.tokenizer: ByteTokenizer | CheckpointTokenizer = (
            ByteTokenizer() if settings.engine == "fake" else CheckpointTokenizer(settings.artefact_directory)
        )
        tiers = settings.beside_config(settings.tiers)
        self._tiers = read_tiers(tiers) if tiers else Tiers()
        self._defaults = asdict(settings.sampling_defaults)

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
        request = self._without_defaults(within_output(request, tier, name), admission.info)
        most = self._settings.max_prompt_tokens
        limit = min(most, tier.max_prompt_tokens or most)
        # A default length gives way to the prompt, one that the client named does not.
        answer = 1 if request.default_length else request.sampling.max_tokens
        prompt = fit(request, tier, min(limit, admission.room(answer)), self._tokens, self._size)
        tokens = len(prompt.ids)
        request = prompt.request.within(admission.room(tokens))
        if tokens > limit < most:
            raise InvalidArgument(f"the prompt has {tokens} tokens: tier '{name}' allows at most {limit}")
        admission.check_tokens("prompt_token_ids", request.prompt_token_ids)
        admission.check_size(tokens, request.sampling.max_tokens)
        admission.check_sampling(request.sampling)
        return RequestState(
            request, prompt.ids, sink, arrived, request_id, tier, name, priority, prompt.trimmed
        )

    def _without_defaults(self, request: GenerationRequest, info: EngineInfo) -> GenerationRequest:
        """The request without what the checkpoint asks for and this engine does not honour."""
        sampling, plain = request.sampling, Sampling(1)
        lost = {
            name: getattr(plain, name)
            for name, value in self._defaults.items()
            if name in info.unsupported and getattr(sampling, name) == value
        }
        return replace(request, sampling=replace(sampling, **lost)) if lost else request

    def _tokens(self, request: GenerationRequest) -> list[int]:
        return request.token_ids(self.tokenizer, self._settings.apply_chat_template)

    def _size(self, content: str) -> int:
        return len(self.tokenizer.encode(content))
