"""Live captions: the microphone's sound over /v1/realtime, words while it comes."""

from __future__ import annotations

import numpy as np
import pytest
from playwright.sync_api import Page, WebSocketRoute, expect

from tests.doubles.waiting import wait_until
from tests.gateway.conftest import Serve, fake_triton
from tests.gateway.page.conftest import TONE_HZ, Open, pitch
from tests.gateway.page.wire import Wire
from tests.gateway.realtime.conftest import Corrects
from trimodal.client.transports.fake import FakeSpeech, FakeTransport
from trimodal.errors import Unavailable


def start(page: Page) -> None:
    page.get_by_role("button", name="Start").click()
    expect(page.locator("#captions-state")).to_have_text("Listening")


def stop(page: Page) -> None:
    page.locator("#captions-button").click()
    expect(page.locator("#captions-state")).to_have_text("Words appear here while you speak.")


def heard(triton: FakeTransport) -> np.ndarray:
    sent = [request for request in triton.requests if request.model == "speech"]
    blocks = [array.ravel() for request in sent for array in request.inputs.values()]
    return np.concatenate([block.astype(np.float32) for block in blocks])


# Five seconds in which the microphone gives nothing, then a second of it at once.
TIMES = """async () => {
  const { LiveSession } = await import(new URL("page/scripts/audio/live.js", location.href));
  const session = new LiveSession("", [], () => {}, () => {});
  let now = 0;
  performance.now = () => now;
  const take = (pieces, ms) => {
    for (let piece = 0; piece < pieces; piece += 1) {
      now += ms;
      session.take(new Float32Array(1600));
    }
  };
  take(20, 100);
  const times = [session.at(2000)];
  now += 5000;
  take(40, 100);
  times.push(session.at(6000));
  now += 1000;
  take(10, 0);
  return [...times, session.at(7000)];
}"""


@pytest.mark.slow
def test_when_something_was_said_is_known_after_a_gap_of_the_microphone(open_page: Open) -> None:
    assert open_page().evaluate(TIMES) == pytest.approx([2_000, 11_000, 12_000])


@pytest.mark.slow
def test_words_while_somebody_speaks(serve: Serve, open_page: Open) -> None:
    served = serve()
    page = open_page(served.url)
    start(page)
    words = page.locator("#captions-text")
    expect(words).to_contain_text("what is this?")
    expect(page.get_by_role("button", name="Stop", pressed=True)).to_be_visible()
    stop(page)
    assert pitch(heard(served.triton)) == pytest.approx(TONE_HZ, abs=20)
    wait_until(lambda: not served.triton.functions["speech"].streams, "the stream ends")  # type: ignore[union-attr]
    expect(words).to_contain_text("what is this?")  # stays


@pytest.mark.slow
def test_words_are_corrected_where_they_stand(serve: Serve, open_page: Open) -> None:
    speech = Corrects(("what", 0.1, 0.3), ("is", 0.4, 0.6), ("this?", 0.7, 0.9), ("now", 2.0, 2.2))
    page = open_page(serve(fake_triton(speech=speech)).url)
    start(page)
    words = page.locator("#captions-text")
    expect(words).to_have_text("what was that? now")
    stop(page)
    start(page)
    expect(words).to_have_text("what was that? now\nwhat was that? now")
    stop(page)


@pytest.mark.slow
def test_what_may_still_change_stands_beside_and_apart(serve: Serve, open_page: Open) -> None:
    words = [("what", 0.05, 0.1), ("is", 0.2, 0.3), ("this?", 3.4, 3.5)]
    page = open_page(serve(fake_triton(speech=FakeSpeech(*words, delay_s=3.0))).url)
    start(page)
    final, tentative = page.locator("#captions-text"), page.get_by_role("group", name="May still change")
    expect(tentative).to_have_text("what is")
    expect(final).to_be_empty()
    expect(page.get_by_role("log")).to_have_text("what is")  # a screen reader's log has final words only
    expect(tentative).to_have_text("this?")
    look = page.evaluate("""() => ["captions-text", "captions-tentative"].map((id) => {
      const { color, textDecorationLine } = getComputedStyle(document.getElementById(id));
      return [color, textDecorationLine];
    })""")
    assert look[0][0] != look[1][0]
    assert [line for _, line in look] == ["none", "underline"], "not by colour alone"
    stop(page)
    whole = page.get_by_role("group", name="Captions", exact=True)
    expect(whole).to_have_text("what is this?")
    expect(final).to_have_text("what is this?")
    expect(tentative).to_be_hidden()
    expect(page.get_by_role("log")).to_have_attribute("aria-live", "off")


@pytest.mark.slow
def test_what_was_never_final_goes_with_the_connection(serve: Serve, open_page: Open) -> None:
    wire = Wire(serve(fake_triton(speech=FakeSpeech(("what", 0.05, 0.1), delay_s=60.0))).url)
    page = open_page(wire.url)
    start(page)
    tentative = page.locator("#captions-tentative")
    expect(tentative).to_have_text("what")
    wire.cut()
    expect(page.locator("#captions-state")).to_have_text("The connection was lost.")
    expect(tentative).to_be_hidden()
    expect(page.locator("#captions-words")).to_be_hidden()


@pytest.mark.slow
def test_sound_waits_for_the_session(serve: Serve, open_page: Open) -> None:
    """On a busy machine the socket is open long before the server's first event."""
    held: list[tuple[WebSocketRoute, str | bytes]] = []
    sent: list[str | bytes] = []

    def route(page: WebSocketRoute) -> None:
        server = page.connect_to_server()
        page.on_message(lambda message: (sent.append(message), server.send(message)))
        server.on_message(lambda message: page.send(message) if sent else held.append((page, message)))

    page = open_page(serve().url)
    page.route_web_socket("**/v1/realtime", route)
    page.reload()
    page.locator("#captions-button").click()
    page.wait_for_timeout(1_000)
    assert not sent
    (one, created) = held[0]
    one.send(created)
    expect(page.locator("#captions-text")).to_contain_text("what is this?")


@pytest.mark.slow
def test_a_model_that_fails_is_told_of(serve: Serve, open_page: Open) -> None:
    def fail(request: object) -> object:
        raise Unavailable("no room for another stream")

    triton = fake_triton(speech=fail)
    page = open_page(serve(triton).url)
    page.get_by_role("button", name="Start").click()
    expect(page.locator("#captions-state")).to_contain_text("no room for another stream")
    expect(page.get_by_role("button", name="Start")).to_be_enabled()


@pytest.mark.slow
def test_a_second_session_begins_on_a_line_of_its_own(serve: Serve, open_page: Open) -> None:
    page = open_page(serve().url)
    words = page.locator("#captions-text")
    for number in (1, 2):
        start(page)
        page.wait_for_function(
            "n => document.querySelector('#captions-text').textContent.split('this?').length > n", arg=number
        )
        stop(page)
    lines = words.evaluate("one => one.innerText").split("\n")
    assert [line.startswith("what is this?") for line in lines] == [True, True]
