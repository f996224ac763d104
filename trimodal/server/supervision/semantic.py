"""Keeps a semantic cache from asking other models than it knows, where they are loaded again.

A cache reads the threshold of its judge and the identity of its embedder when it is opened: with others it
would take wrong answers for right ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from trimodal.errors import OperatorError
from trimodal.manifest import MANIFEST
from trimodal.repository import FAKE, ONLY_WITH, Model, read_model
from trimodal.server.admin import Api
from trimodal.server.supervision.stubs import StubWatch


class AskedModels:
    """What the models that caches ask were built from when the caches' own processes were first seen."""

    def __init__(self, api: Api, models: Mapping[str, Model], profile: str) -> None:
        self._api, self._models, self._profile = api, models, profile
        self._asked = {name: asked for name, model in models.items() if (asked := list(_asked_by(model)))}
        self._seen: dict[str, set[int]] = {}  # caller → its processes
        self._known: dict[str, dict[str, str]] = {}  # caller → model → checkpoint

    def look(self, stubs: StubWatch) -> None:
        """Notes what lies in the repository for callers that have new processes."""
        for caller, asked in self._asked.items():
            processes = stubs.processes(caller)
            if processes - self._seen.get(caller, set()):
                self._known[caller] = {name: self._checkpoint(name) for name in asked}
            self._seen[caller] = processes

    def refusal(self, name: str) -> str:
        """Why a model must not be loaded as it is now; empty: it may."""
        if not any(name in asked for asked in self._asked.values()):
            return ""
        now = self._checkpoint(name)
        for caller in self._api.semantic_callers(name):
            known = self._known.get(caller, {}).get(name, "")
            if known and now and known != now:
                return (
                    f"the semantic cache of {caller} knows another checkpoint of it: put that back, have the "
                    "cache serve exact, or start the server again"
                )
        return ""

    def _checkpoint(self, name: str) -> str:
        """SHA-256 of what a model is built from now, or "fake"; empty: none can be read."""
        if name not in self._models:
            return ""
        try:
            # Its file of the profile may not have been there before.
            model = read_model(self._models[name].directory.parent, name, self._profile)
            if not model.artefact:
                return FAKE
            manifest = (model.artefact_directory(model.artefact) / MANIFEST).read_bytes()
            return str(json.loads(manifest)["source_sha256"])
        except (OperatorError, OSError, RuntimeError, ValueError, LookupError, TypeError):
            return ""


def _asked_by(model: Model) -> Iterable[str]:
    named = (model.parameters.get(key, "").partition("@")[0] for key in ONLY_WITH)
    return filter(None, named)
