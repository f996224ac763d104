"""Makes OpenAI's error answers: {"error": {"message", "type", "param", "code"}} with the right status.

ApiError                    what a handler raises; status, type, param and code are the client's to read
InvalidArgument       400   the request is wrong; param is the field that the sentence names first; 403 where
                            it is the key's tier
ModelNotFound         404   Triton has no such model
Unavailable           503   no room now, with Retry-After; 429 where it was the caller's own limit
Timeout               504   the deadline passed
other TransportError  502   the server behind did not answer
anything else         500   our fault; the log says where
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fastapi.exceptions import RequestValidationError

from trimodal.client.errors import Timeout, TransportError
from trimodal.errors import (
    Cancelled,
    InvalidArgument,
    ModelNotFound,
    RequestError,
    TrimodalError,
    Unavailable,
    as_request_error,
    is_starved,
)
from trimodal.settings import shorten

logger = logging.getLogger(__name__)

# An answer quotes names that the client chose: of fields, models, paths, as long as it liked.
_MOST_MESSAGE, _MOST_PARAM = 1000, 200

# A sentence of the server begins with the field's name: "max_tokens is 0: 1 to 512 are taken".
_FIELD = re.compile(r"(?:parameter )?'?([a-z_]+(?:\[\d+\]|\.[a-z_]+)*)'?(?: is | has | holds | must |: )")
# Or it says what the engine lacks, and of one field its name: "… does not support logit_bias: it has none".
_LACKED = re.compile(r"engine '[^']*' as it runs here does not support (?:([a-z_]+): )?")
# As Triton says it of a model that is not for the endpoint.
_OTHER_INPUTS = re.compile(
    r"unexpected inference input '.*' for model '([^']*)'$"
    r"|expected .*inputs? for model '([^']*)'(?:$|\. Got input)"
)
# What pydantic says of a value of another kind, by what is needed. It would name classes of Python.
_KINDS = {
    "string_type": "a string", "list_type": "a list", "dict_type": "an object", "model_type": "an object",
    "model_attributes_type": "an object", "int_type": "a whole number", "float_type": "a number",
    "bool_type": "true or false",
}  # fmt: skip
# For the tier, the model or its memory: the last number is what there is room for.
_TOO_LONG = re.compile(r"(?:the prompt has |prompt \()\d.*\b(\d+)\D*$")
_FIRST = re.compile(r":? ")  # what ends the name where the sentence is ours
# The assistant puts its stage in front, the model speech the one that hears for it.
_STAGE = re.compile(r"^((heard|saw|answer|speech_recognize): )+")
# Names of tensors → what a client of OpenAI's API called them.
_FIELDS = dict.fromkeys(("text_input", "image", "audio", "history"), "messages") | {
    "ttft_deadline_ms": "x-slo-ttft-ms", "prompt_token_ids": "prompt",
}  # fmt: skip
_TYPES = {
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error",
    404: "invalid_request_error", 405: "invalid_request_error", 408: "timeout_error",
    413: "invalid_request_error", 415: "invalid_request_error", 429: "rate_limit_error",
    431: "invalid_request_error", 499: "cancelled", 502: "api_error", 503: "overloaded_error",
    504: "timeout_error",
}  # fmt: skip


class ApiError(TrimodalError):
    """One answer in OpenAI's error shape.

    `param`: the field that is wrong; `code`: for programs; `limits`: headers of what the key has left.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: float | None = None,
        limits: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(shorten(message, _MOST_MESSAGE))
        self.status = status
        self.param = param and shorten(param, _MOST_PARAM)
        self.code = code
        self.retry_after_s = retry_after_s
        self._limits = limits or {}

    @property
    def body(self) -> dict[str, Any]:
        """The JSON that says it."""
        kind = _TYPES.get(self.status, "api_error")
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}

    @property
    def headers(self) -> Mapping[str, str]:
        """Retry-After in whole seconds, as HTTP has it, and in milliseconds, as OpenAI's clients read it.

        Before them what is left of the key's limits.
        """
        if self.retry_after_s is None:
            return self._limits
        seconds = max(0.0, self.retry_after_s)
        waits = {"retry-after": str(math.ceil(seconds)), "retry-after-ms": str(math.ceil(seconds * 1000))}
        return {**self._limits, **waits}


def invalid(sentence: str, *, status: int = 400, code: str | None = None) -> ApiError:
    """Refuses a field of the request, with whose name the sentence begins."""
    return ApiError(status, sentence, param=_FIRST.split(sentence, 1)[0], code=code)


def unsupported(field: str, why: str) -> ApiError:
    """Refuses a field of OpenAI's API that this server does not have."""
    return invalid(f"{field} {why}", code="unsupported_parameter")


def as_api_error(
    error: BaseException, request_id: str = "", own_name: Callable[[str], str] = str
) -> ApiError:
    """What a client may be told of any failure; what is our fault goes to the log with its traceback.

    Args:
        own_name: puts the name that a field has in the request in front of a sentence about it.
    """
    if isinstance(error, ApiError):
        return error
    if isinstance(error, ModelNotFound):
        return ApiError(404, str(error), param="model", code="model_not_found")
    if isinstance(error, InvalidArgument):
        sentence = _STAGE.sub("", str(error))
        stage = str(error).removesuffix(sentence)
        if not stage and (other := _OTHER_INPUTS.match(sentence)):
            model = other[1] or other[2]
            told = f"model is '{model}': it does not answer what this endpoint asks"
            return ApiError(400, told, param="model")
        if sentence.startswith("tier is "):  # the key has it from its operator; no request names one
            return ApiError(403, f"this API key's {sentence}; who made it can mend it", code="key_tier")
        sentence = own_name(sentence)
        code = None
        if too_long := _TOO_LONG.match(sentence):
            code = "context_length_exceeded"
            # LiteLLM (1.110) and others know it by these words of OpenAI's.
            sentence = f"This model's maximum context length is {too_long[1]} tokens. However, {sentence}"
        elif _LACKED.match(sentence):
            code = "unsupported_parameter"
        named = _LACKED.match(sentence) or _FIELD.match(sentence)
        field = named[1] if named else None
        return ApiError(400, stage + sentence, param=field and _FIELDS.get(field, field), code=code)
    if isinstance(error, Unavailable):
        return ApiError(503, str(error), code="overloaded", retry_after_s=error.retry_after_s or 1.0)
    if isinstance(error, Cancelled):
        return ApiError(499, str(error), code="cancelled")
    if isinstance(error, Timeout):
        return ApiError(504, "the model did not answer in time", code="timeout")
    if isinstance(error, TransportError):
        # Its sentence names the address behind this gateway, which is no client's business.
        logger.warning("%s", error, extra={"request_id": request_id})
        return ApiError(502, "the model server did not answer", code="upstream_failed", retry_after_s=1.0)
    if isinstance(error, RequestError):
        return ApiError(500, str(error), code="internal_error")
    if is_starved(error):
        return as_api_error(as_request_error(error, request_id))
    logger.error("the gateway failed on a request", exc_info=error, extra={"request_id": request_id})
    return ApiError(500, "the gateway failed on this request; its log says why", code="internal_error")


def invalid_body(error: RequestValidationError) -> ApiError:
    """Names the field of a JSON body that pydantic refused."""
    problems = error.errors()
    # Of a value that may be one of several kinds, the kind that it is meant to be comes furthest.
    furthest = max(len(one["loc"]) for one in problems)
    problems = [one for one in problems if len(one["loc"]) == furthest]
    problem = min(problems, key=lambda one: (not one["type"].startswith("union_tag"), one["type"] in _KINDS))
    if problem["type"] == "json_invalid":
        return ApiError(400, f"the body is not valid JSON: {problem.get('ctx', {}).get('error', '')}")
    field = _field(problem)
    if not field and problem["type"] == "missing":
        return ApiError(400, "the body is empty: a JSON object is needed")
    if problem["type"] == "extra_forbidden":  # in an event of realtime
        return ApiError(400, f"{field}: unknown parameter", param=field, code="unknown_parameter")
    reason = _reason(problem, problems)
    if not field and (named := _FIELD.match(reason)):  # by a rule about several fields
        return ApiError(400, reason, param=named[1])
    return ApiError(400, f"{field or 'the body'}: {reason}", param=field or None)


def _reason(problem: Mapping[str, Any], problems: Sequence[Mapping[str, Any]]) -> str:
    kind, values = problem["type"], problem.get("ctx", {})
    if kind in _KINDS:
        same = [one for one in problems if _field(one) == _field(problem)]
        return f"{' or '.join(dict.fromkeys(_KINDS[one['type']] for one in same))} is needed"
    if kind == "union_tag_not_found":
        return f"its {values['discriminator'].strip(chr(39))} is needed"
    if kind == "union_tag_invalid":
        name = values["discriminator"].strip("'")
        return f"its {name} is '{values['tag']}': one of {values['expected_tags']} is needed"
    reason = str(problem["msg"]).removeprefix("Value error, ")
    return reason[:1].lower() + reason[1:]


def _field(problem: Mapping[str, Any]) -> str:
    """The field's path as JSON has it. pydantic's also names the kinds of value that it tried."""
    place: tuple[int | str, ...] = problem["loc"][1:]  # without "body"
    path, tagged = "", False
    for number, part in enumerate(place, 1):
        # Our classes have capitals, our fields none; a client's own names, as of metadata, come last.
        of_class = number < len(place) or _KINDS.get(problem["type"]) == "an object"
        if isinstance(part, int):
            path += f"[{part}]"
        elif "[" in part or part in ("str", "constrained-str") or (part[:1].isupper() and of_class):
            tagged = "tagged-union" in part
        elif tagged:
            tagged = False
        else:
            path += f".{part}"
    return path.lstrip(".")
