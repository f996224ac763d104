"""Looks at the server and the gateway again and again, through their going away and coming back."""

from __future__ import annotations

import http.client
import json
import time
import urllib.request
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from urllib.parse import urlsplit

from rich.console import Console, RenderableType
from rich.live import Live

from trimodal.errors import ServerError
from trimodal.top.figures import Figures, figures, ready_at_gateway
from trimodal.top.page import Change, Page, fetch
from trimodal.top.screen import Source, screen

Fetch = Callable[[], Page]
Ask = Callable[[], "Mapping[str, bool]"]
MOST = 2.0  # seconds that one look may take
# Whose page → how names of its metrics begin, and the option for the other one's.
_PAGES = {"server": ("nv_", "--gateway"), "gateway": ("trimodal_gateway_", "--url")}


class Target:
    """One page of metrics, and the last two looks at it."""

    def __init__(self, name: str, address: str, fetch: Fetch, clock: Callable[[], float] = time.time) -> None:
        self.source = Source(name, address)
        self._fetch = fetch
        self._clock = clock
        self._page: Page | None = None
        self.change: Change | None = None

    def look(self) -> None:
        """Fetches the page. Without an answer the target is away, and what was known of it is forgotten."""
        name, address = self.source.name, self.source.address
        try:
            page = self._fetch()
        except ServerError as error:
            since = self.source.since if self.source.away else self._clock()
            self.source = Source(name, address, str(error), since)
            self._page = self.change = None
            return
        self.source = Source(name, address)
        self.change = Change(self._page or page, page)  # of the first look only the gauges are known
        self._page = page


class Top:
    """All that one view looks at. `ready` asks the server's health page: model → whether it is ready."""

    def __init__(self, server: Target, gateway: Target | None, ready: Ask) -> None:
        self._targets = [server, *([gateway] if gateway else [])]
        self._server, self._gateway = server, gateway
        self._ready = ready

    @property
    def sources(self) -> list[Source]:
        return [target.source for target in self._targets]

    def look(self) -> Figures:
        """One look at everything, at once."""
        with ThreadPoolExecutor(len(self._targets)) as threads:
            list(threads.map(Target.look, self._targets))
        gateway = self._gateway.change if self._gateway else None
        return figures(self._server.change, gateway, self._readiness(gateway))

    def _readiness(self, gateway: Change | None) -> Mapping[str, bool]:
        """The gateway's word, else the health page's."""
        if gateway:
            return ready_at_gateway(gateway)
        return self._ready() if self._server.change else {}


def health_page(address: str) -> Ask:
    """Asks the health page at host:port; nothing where none answers, as that of another's Triton."""

    def ask() -> Mapping[str, bool]:
        try:
            with urllib.request.urlopen(f"http://{address}/health", timeout=MOST) as answer:
                models = json.load(answer)["models"]
                return {str(name): bool(model["ready"]) for name, model in models.items()}
        except (OSError, ValueError, TypeError, KeyError, AttributeError, http.client.HTTPException):
            return {}

    return ask


def metrics_url(text: str) -> str:
    """The URL of a page of metrics, of host:port or a whole URL.

    Raises: ServerError where it is neither.
    """
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(url)
        name = (parts.hostname or "").encode("idna")  # as it is looked up
        good = parts.scheme in ("http", "https") and bool(name) and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise ServerError(f"'{text}' is no address: write host:port, or a URL of http or https")
    return url if parts.path.strip("/") else f"{url.rstrip('/')}/metrics"


def target(name: str, address: str, key: str = "", timeout: float = MOST) -> Target:
    """The server's page over HTTP, or the gateway's. Raises: ServerError (the address)."""
    url, (begins, option) = metrics_url(address), _PAGES[name]

    def look() -> Page:
        page = fetch(url, timeout=timeout, key=key)
        if not any(metric.startswith(begins) for metric in page.samples):
            raise ServerError(f"its page is not of a {name}: it may be one for {option}")
        return page

    return Target(name, urlsplit(url).netloc, look)


def once(
    top: Top, console: Console, *, interval: float, as_json: bool, sleep: Callable[[float], None]
) -> None:
    """Prints one picture of `interval` seconds.

    Raises: ServerError where the server does not answer.
    """
    top.look()
    sleep(interval)
    shown = top.look()
    away = top.sources[0]
    if away.away:
        raise ServerError(f"no metrics at {away.address}: {away.away}")
    if as_json:
        sources = [asdict(source) for source in top.sources]
        console.out(json.dumps({"sources": sources, **asdict(shown)}, indent=2), highlight=False)
    else:
        console.print(_drawn(top, shown, console.width, interval))


def live(top: Top, console: Console, *, interval: float, sleep: Callable[[float], None]) -> None:
    """Shows the view until Ctrl-C, which it returns from."""
    try:
        with Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as view:
            while True:
                view.update(_drawn(top, top.look(), console.width, interval), refresh=True)
                sleep(interval)
    except KeyboardInterrupt:
        return


def _drawn(top: Top, shown: Figures, width: int, interval: float) -> RenderableType:
    return screen(shown, top.sources, width=width, interval=interval, now=time.time())
