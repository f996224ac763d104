"""Looks requests up in the cache before they are queued, and stores complete answers."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import asdict
from datetime import date

from trimodal.cache.answers import AnswerCache, AnswerLookup
from trimodal.cache.keys import question
from trimodal.cache.values import Hit, Question
from trimodal.llm.frontend.request_state import Generation, RequestState
from trimodal.llm.rendering import ANSWERED
from trimodal.llm.settings import LlmSettings

logger = logging.getLogger(__name__)

_COMPLETE = ("stop", "length")


class CacheLookup:
    """Asks the cache of one model, by the rules on who may be answered from it.

    `answers`: None: nothing is stored; requests only share what is under way.
    `templated`: a bare prompt becomes a user message unless its request says otherwise; None: never, there is
    no template. `dated`: the template may write the day.
    """

    def __init__(
        self,
        settings: LlmSettings,
        answers: AnswerCache | None,
        fingerprint: str,
        *,
        templated: bool | None = True,
        dated: bool = False,
    ) -> None:
        self._settings = settings
        self._templated = templated
        self._dated = dated
        self.answers = answers
        self._fingerprint = fingerprint

    def question(self, state: RequestState) -> Question | None:
        """What the cache may know of a request; None: its answer is neither shared nor kept."""
        request, sampling, terms = state.request, state.request.sampling, state.request.terms
        if sampling.temperature > 0 and "store" not in terms.cache_control:
            return None  # samples are wanted because they differ
        if request.form.is_checked:
            return None  # its first answer may not be the one that it gets
        if state.make_reader():
            return None  # what is stored has words alone
        if terms.cache_salt:
            return None  # how soon an answer comes is to tell nobody else that it was asked for
        if sampling.logprobs is not None or sampling.prompt_logprobs is not None:
            return None  # stored answers have none, and other listeners want none
        if sampling.min_tokens or sampling.ignore_eos or sampling.stop_token_ids or sampling.logit_bias:
            return None  # what an evaluation or a bench asks for, which wants to see the model
        if request.prompt_token_ids:
            return None  # likewise
        if sampling.lora_name:
            return None  # another adapter may have this name tomorrow
        told: object = request.tools.offered if request.tools else ""
        if request.rendering != ANSWERED:
            told = [told, asdict(request.rendering)]
        templated = self._templated is not None and request.is_templated(self._templated)
        if templated and self._dated:
            told = [told, date.today().isoformat()]  # local, as the template has it
        made = question(
            self._fingerprint,
            tenant=terms.tenant,
            namespace=terms.cache_namespace or next(iter(self._settings.cache_ttls)),
            prompt=request.prompt,
            messages=request.messages,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            seed=sampling.seed,
            min_p=sampling.min_p,
            penalties=sampling.penalties,
            form=(sampling.grammar, json.dumps(told) if told else ""),
            stops=request.stops,
            max_tokens=sampling.max_tokens,
            verbatim=request.rendering.continue_final_message or not templated,
        )
        made.key  # noqa: B018 - computed once, here: a long prompt must not be hashed under a lock
        return made

    def begin(self, state: RequestState) -> AnswerLookup | None:
        """Notes a request's question and begins its lookup; None: there is none to be made."""
        state.question = self.question(state)
        if self.answers is None or state.question is None or state.wants_fresh:
            return None
        return self.answers.lookup(state.question)

    def find(self, lookup: AnswerLookup) -> Iterator[Hit | None]:
        """Asks one layer after the other, the next one when the caller goes on; None: a miss."""
        for layer in (lookup.exact, lookup.semantic):
            hit = None
            try:
                hit = layer()
            except Exception:
                # The cache never raises; a request must not get lost here even if it does.
                logger.exception("a lookup in the cache failed")
            # What others can write to may hold an answer whose finish_reason never ends a request.
            yield hit if hit and hit.entry.finish_reason in _COMPLETE else None

    def is_audited(self, state: RequestState, hit: Hit) -> bool:
        """Whether the hit that answered a request is drawn for an audit; not where nothing is to be kept."""
        audits, question = self.answers.audits if self.answers else None, state.question
        if hit.kind != "semantic" or audits is None or question is None:
            return False
        return "no-store" not in state.request.terms.cache_control and audits.draws(question)

    def keep(self, generation: Generation) -> None:
        """Stores a complete answer in the background. Never raises."""
        question, answer, finish_reason = generation.question, generation.answer, generation.finish_reason
        if question is None or self.answers is None:
            return
        try:
            if generation.storable:
                self.answers.keep(question, answer, finish_reason, generation.ticket.completion_tokens)
        except Exception:
            logger.exception("an answer could not be kept", extra={"request_id": generation.id})
