"""Pictures that are chosen, dropped or pasted; questions that are spoken."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.gateway.conftest import Serve
from tests.gateway.page.conftest import RATE, TONE_HZ, Open, ask, pitch
from trimodal.assistant.settings import AssistantSettings
from trimodal.client.transports.fake import FakeTransport
from trimodal.gateway.page.serving import read_samples

pytestmark = pytest.mark.slow

SOME_SPEECH = re.compile(r"Listening (0\.[5-9]|[1-9])")
A_SECOND = re.compile(r"Listening [1-9]\.")
NAME = "seven.png"
# Files that the page makes itself, given to it by an event as a user's hand would.
GIVE = """([kind, type, ...names]) => {
  const transfer = new DataTransfer();
  if (window.copied) transfer.setData("text/plain", window.copied);
  for (const name of names) transfer.items.add(new File(["a picture"], name, { type }));
  const data = kind === "paste" ? { clipboardData: transfer } : { dataTransfer: transfer };
  const Event = kind === "paste" ? ClipboardEvent : DragEvent;
  const target = document.getElementById("question");
  for (const name of kind === "paste" ? ["paste"] : ["dragover", "drop"]) {
    target.dispatchEvent(new Event(name, { bubbles: true, cancelable: true, ...data }));
  }
}"""

# The microphone's tracks: `happen(event)` tells them what happens to a device, `states()` how they are.
WATCHED = """() => {
  const open = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
  navigator.mediaDevices.getUserMedia = async (wanted) => {
    const stream = await open(wanted);
    window.states = () => stream.getTracks().map((track) => track.readyState);
    window.happen = (event) => stream.getTracks().forEach((track) => track.dispatchEvent(new Event(event)));
    return stream;
  };
}"""
# A microphone that hears a second of silence with each `hear()`.
SCRIPTED = """() => {
  window.AudioContext = class {
    sampleRate = 16000;
    audioWorklet = { addModule: async () => {} };
    createMediaStreamSource = () => ({ connect: () => {} });
    resume = async () => {};
    close = async () => {};
  };
  window.AudioWorkletNode = class {
    constructor() {
      const { port1, port2 } = new MessageChannel();
      this.port = port1;
      window.hear = () => port2.postMessage(new Float32Array(16000));
    }
  };
}"""
NO_MICROPHONE = """() => {
  navigator.mediaDevices.getUserMedia = async () => { throw new DOMException("", "NotFoundError"); };
}"""


def ask_about_the_picture(page: Page, triton: FakeTransport) -> None:
    expect(page.locator("#attachments .file")).to_have_text(NAME)
    ask(page, "what is it?")
    expect(page.locator(".found .value")).to_have_text("seven (0.90), one (0.10)")
    expect(page.locator(".answer .text")).to_have_text("A seven.")
    expect(page.get_by_alt_text(f"Picture {NAME}")).to_have_count(1)
    expect(page.locator("#attachments")).to_be_hidden()
    (request,) = (one for one in triton.requests if "probe" not in one.parameters)
    assert request.model == "assistant"
    assert request.inputs["image"].tolist() == [b"a picture"]
    assert request.inputs["text_input"].tolist() == [b"what is it?"]


@pytest.mark.parametrize("how", ["chosen", "dropped"])
def test_a_picture(serve: Serve, open_page: Open, how: str) -> None:
    served = serve()
    page = open_page(served.url)
    if how == "chosen":
        with page.expect_file_chooser() as chosen:
            page.get_by_role("button", name="Picture", exact=True).click()
        chosen.value.set_files({"name": NAME, "mimeType": "image/png", "buffer": b"a picture"})
    else:
        page.evaluate(GIVE, ["drop", "image/png", NAME])
        expect(page.locator("#drop")).to_be_hidden()
    ask_about_the_picture(page, served.triton)


def test_a_picture_that_is_pasted_and_one_that_is_none(serve: Serve, open_page: Open) -> None:
    served = serve()
    page = open_page(served.url)
    page.evaluate(GIVE, ["paste", "text/html", "page.html"])
    told = "A picture is a JPEG, PNG, WebP, GIF, BMP, TIFF, AVIF or HEIC file."
    expect(page.locator("#notice")).to_have_text(told)
    page.evaluate(GIVE, ["paste", "image/png", NAME])
    page.get_by_role("button", name=f"Remove {NAME}").click()
    expect(page.locator("#attachments")).to_be_hidden()
    page.evaluate(GIVE, ["paste", "image/png", NAME])
    ask_about_the_picture(page, served.triton)


def test_what_is_copied_as_text_too_is_text_but_for_a_files_name(serve: Serve, open_page: Open) -> None:
    """Spreadsheets copy cells as both, systems a file with its name."""
    page = open_page(serve().url)
    page.evaluate("window.copied = '1\\t2\\n3\\t4'")
    page.evaluate(GIVE, ["paste", "image/png", "image.png"])
    page.evaluate(f"window.copied = '/home/me/{NAME}'")
    page.evaluate(GIVE, ["paste", "image/png", NAME])
    expect(page.locator("#attachments .file")).to_have_text([NAME])
    page.get_by_role("button", name=f"Remove {NAME}").click()
    page.evaluate("window.copied = 'words'")
    page.evaluate(GIVE, ["paste", "image/png", "image.png"])
    page.wait_for_timeout(100)
    expect(page.locator("#attachments")).to_be_hidden()


@pytest.mark.parametrize(
    ("name", "type"), [("IMG_0001.HEIC", ""), ("seven.avif", ""), ("IMG_0001.heic", "image/heif")]
)
def test_a_picture_whose_type_the_system_does_not_know_or_names_otherwise(
    serve: Serve, open_page: Open, name: str, type: str
) -> None:
    """The last is what browsers on Linux say of HEIC (shared-mime-info)."""
    served = serve()
    page = open_page(served.url)
    page.evaluate(GIVE, ["drop", type, name])
    expect(page.locator("#attachments .file")).to_have_text(name)
    ask(page, "what is it?")
    expect(page.locator(".answer .text")).to_have_text("A seven.")
    assert served.asked[-1].inputs["image"].tolist() == [b"a picture"]


def test_a_picture_needs_a_question(serve: Serve, open_page: Open) -> None:
    """The assistant takes none alone; typed afterwards, the question goes with it."""
    served = serve()
    page = open_page(served.url)
    page.evaluate(GIVE, ["drop", "image/png", NAME])
    expect(page.locator("#attachments .file")).to_have_text(NAME)
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#notice")).to_have_text("Type a question first.")
    assert not served.asked
    ask_about_the_picture(page, served.triton)


def test_of_two_pictures_the_page_says_which_it_took(serve: Serve, open_page: Open) -> None:
    page = open_page(serve().url)
    page.evaluate(GIVE, ["drop", "image/png", NAME, "one.png"])
    expect(page.locator("#attachments .file")).to_have_text(NAME)
    expect(page.locator("#notice")).to_have_text(f"One picture a question: {NAME} was taken.")


def test_a_question_that_is_spoken(serve: Serve, open_page: Open) -> None:
    served = serve()
    page = open_page(served.url)
    button = page.get_by_role("button", name="Hold to talk")
    listening = page.get_by_role("button", name="Listening")
    button.hover()
    page.mouse.down()
    expect(listening).to_contain_text(A_SECOND)
    page.mouse.up()
    expect(page.locator(".found .value")).to_have_text("what is this")
    expect(page.locator(".answer .text")).to_have_text("A seven.")
    expect(page.get_by_role("button", name="Play")).to_be_visible()
    (request,) = served.asked
    assert request.model == "assistant"
    assert "image" not in request.inputs
    heard = request.inputs["audio"]
    assert heard.size > RATE
    assert pitch(heard) == pytest.approx(TONE_HZ, abs=20)  # busy browsers lose blocks; a wrong rate is 35 off


def test_speaking_with_the_keyboard(serve: Serve, open_page: Open) -> None:
    served = serve()
    page = open_page(served.url)
    page.get_by_role("button", name="Hold to talk").focus()
    listening = page.get_by_role("button", name="Listening")
    page.keyboard.down(" ")
    expect(listening).to_contain_text(SOME_SPEECH)
    page.keyboard.press("Escape")  # thrown away
    page.keyboard.up(" ")
    expect(page.get_by_role("button", name="Hold to talk")).to_be_visible()
    page.keyboard.down(" ")
    expect(listening).to_contain_text(SOME_SPEECH)
    page.keyboard.up(" ")
    expect(page.locator(".found .value")).to_have_text("what is this")
    assert len(served.asked) == 1


def test_a_spoken_question_ends_where_the_assistant_would_refuse_it(serve: Serve, open_page: Open) -> None:
    served = serve()
    page = open_page(served.url)
    page.evaluate(SCRIPTED)
    page.get_by_role("button", name="Hold to talk").hover()
    page.mouse.down()
    page.wait_for_function("() => window.hear")
    page.evaluate("for (let second = 0; second < 59; second += 1) hear()")
    expect(page.get_by_role("button", name="Listening")).to_have_text("Listening 59.0 s")
    expect(page.locator("#notice")).to_be_empty()
    page.evaluate("hear(), hear()")
    expect(page.locator("#notice")).to_have_text("A question is at most 60 s long.")
    page.mouse.up()
    expect(page.locator(".answer .text")).to_have_text("A seven.")
    (request,) = served.asked
    assert request.inputs["audio"].size == AssistantSettings().max_audio_s * RATE


def test_a_microphone_that_is_muted_and_lost(serve: Serve, open_page: Open) -> None:
    served = serve()
    page = open_page(served.url)
    page.evaluate(WATCHED)
    notice, state = page.locator("#notice"), page.locator("#captions-state")
    button = page.get_by_role("button", name="Hold to talk")
    button.hover()
    page.mouse.down()
    expect(page.get_by_role("button", name="Listening")).to_contain_text(SOME_SPEECH)
    page.evaluate("happen('mute')")
    expect(notice).to_have_text("The microphone is muted.")
    page.evaluate("happen('ended')")
    expect(notice).to_have_text("The microphone was lost.")
    expect(button).to_be_visible()
    page.mouse.up()
    page.get_by_role("button", name="Start").click()
    expect(state).to_have_text("Listening")
    page.evaluate("happen('mute')")
    expect(state).to_have_text("The microphone is muted.")
    page.evaluate("happen('unmute')")
    expect(state).to_have_text("Listening")
    page.evaluate("happen('ended')")
    expect(state).to_have_text("The microphone was lost.")
    expect(page.get_by_role("button", name="Start")).to_be_enabled()
    page.get_by_role("button", name="Converse").click()
    expect(page.get_by_role("button", name="Converse", pressed=True)).to_be_visible()
    expect(page.locator("#turn-ends")).not_to_have_text("None was begun yet.")
    page.evaluate("happen('mute')")
    expect(notice).to_have_text("The microphone is muted.")
    page.evaluate("happen('ended')")
    expect(notice).to_have_text("The microphone was lost.")
    expect(page.get_by_role("button", name="Converse", pressed=False)).to_be_visible()
    assert not [one for one in served.asked if one.model == "assistant"], "half a question is not asked"


def test_a_browser_without_sound_lets_go_of_the_microphone(serve: Serve, open_page: Open) -> None:
    page = open_page(serve().url)
    page.evaluate(WATCHED)
    page.evaluate("() => { window.AudioContext = class { constructor() { throw new Error(); } }; }")
    page.get_by_role("button", name="Hold to talk").hover()
    page.mouse.down()
    expect(page.locator("#notice")).to_have_text("This browser cannot record sound.")
    assert page.evaluate("states()") == ["ended"]
    page.mouse.up()


def test_a_microphone_that_is_muted_from_the_beginning(serve: Serve, open_page: Open) -> None:
    page = open_page(serve().url)
    page.evaluate("Object.defineProperty(MediaStreamTrack.prototype, 'muted', { get: () => true })")
    page.evaluate(WATCHED)
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    expect(page.locator("#captions-state")).to_have_text("The microphone is muted.")
    page.evaluate("happen('unmute')")
    expect(page.locator("#captions-state")).to_have_text("Listening")
    page.get_by_role("button", name="Converse").click()
    expect(page.locator("#turn-ends")).not_to_have_text("None was begun yet.")
    expect(page.locator("#notice")).to_have_text("The microphone is muted.")


def test_without_a_microphone(serve: Serve, open_page: Open) -> None:
    page = open_page(serve().url)
    page.evaluate(NO_MICROPHONE)
    page.get_by_role("button", name="Hold to talk").click()
    expect(page.locator("#notice")).to_have_text("There is no microphone.")
    page.get_by_role("button", name="Start").click()
    expect(page.locator("#captions-state")).to_have_text("There is no microphone.")
    expect(page.get_by_role("button", name="Start")).to_be_enabled()


def test_a_suggestion_is_asked_with_its_photo_and_one_with_its_recording(
    serve: Serve, open_page: Open
) -> None:
    served = serve()
    page = open_page(served.url)
    page.get_by_role("button", name="What is in this picture?").click()
    expect(page.locator(".found .value")).to_have_text("seven (0.90), one (0.10)")
    (request,) = served.asked
    assert request.inputs["image"].tolist() == [read_samples()["samples/koala.jpg"]]
    page.get_by_role("button", name="New chat").click()
    page.get_by_role("button", name="A recording").click()
    expect(page.locator(".found .value")).to_have_text("what is this")
    assert "audio" in served.asked[-1].inputs


@pytest.mark.parametrize("status", [429, 503, 0])
def test_a_suggestion_outlives_a_failure_that_passes(serve: Serve, open_page: Open, status: int) -> None:
    """0: nobody answers."""
    page = open_page(serve().url)
    failing = {"status": status, "json": {"error": {"message": "later"}}}
    page.route("**/samples/*", lambda route: route.fulfill(**failing) if status else route.abort())
    suggestion = page.get_by_role("button", name="What is in this picture?")
    suggestion.click()
    expect(page.locator("#notice")).to_have_text("later" if status else "The gateway does not answer.")
    page.unroute("**/samples/*")
    suggestion.click()
    expect(page.locator(".answer .text")).to_have_text("A seven.")
    expect(page.locator("#notice")).to_be_empty()
