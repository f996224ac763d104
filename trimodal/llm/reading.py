"""From a request to a stream that may be served: its tier, its tokens, its budget. It admits nothing."""

from __future__ import annotations

import time

from trimodal.errors import InvalidArgument
from trimodal.llm.admission import Admission
from trimodal.llm.budget import fit, within_output
from trimodal.llm.request import GenerationRequest
from trimodal.llm.settings import LlmSettings
from trimodal.llm.stream import Sink, Stream
from trimodal.llm.ticketing import deadline, priority
from trimodal.llm.tiers import Tiers, read_tiers
from trimodal.llm.tokenizer import ByteTokenizer, CheckpointTokenizer


class Reader:
    """The tokenizer and the tiers of one model.

    Raises:
        OperatorError: the tokenizer or the tiers' file cannot be used.
    """

    def __init__(self, settings: LlmSettings) -> None:
        self._settings = settings
        self.tokenizer: ByteTokenizer | CheckpointTokenizer = (
            ByteTokenizer() if settings.engine == "fake" else CheckpointTokenizer(settings.artefact_directory)
        )
        self._tiers = read_tiers(settings.tiers_file) if settings.tiers else Tiers()

    def read(self, request: GenerationRequest, sink: Sink, admission: Admission) -> Stream:
        """The client's stream, its prompt within budget.

        Raises:
            InvalidArgument: it could never be served; names the field and the limit.
        """
        arrived = time.perf_counter()
        terms = request.terms
        tier, name = self._tiers.named(terms.tier), terms.tier or self._tiers.default
        urgency = priority(terms, tier, name)
        request = within_output(request, tier, name)
        most = self._settings.max_prompt_tokens
        limit = min(most, tier.max_prompt_tokens or most)
        # A default length gives way to the prompt, one that the client named does not.
        answer = 1 if request.default_length else request.sampling.max_tokens
        prompt = fit(request, tier, min(limit, admission.room(answer)), self._tokens, self._size)
        request = prompt.request.within(admission.room(len(prompt.ids)))
        if len(prompt.ids) > limit < most:
            raise InvalidArgument(
                f"the prompt has {len(prompt.ids)} tokens: tier '{name}' allows at most {limit}"
            )
        admission.check_size(len(prompt.ids), request.sampling.max_tokens)
        return Stream(
            request,
            prompt.ids,
            sink,
            arrived=arrived,
            tier=tier,
            tier_name=name,
            priority=urgency,
            deadline=deadline(arrived, terms, tier),
            trimmed=prompt.trimmed,
        )

    def _tokens(self, request: GenerationRequest) -> list[int]:
        return request.token_ids(self.tokenizer, self._settings.apply_chat_template)

    def _size(self, content: str) -> int:
        return len(self.tokenizer.encode(content))
