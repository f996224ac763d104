"""Shows what is said into a microphone, or in a WAV file as if it were said now, over a WebSocket.

pip install websockets sounddevice                                    # sounddevice: for the microphone
python clients/realtime_microphone.py                                 # a microphone
python clients/realtime_microphone.py talk.wav --url ws://127.0.0.1:8080/v1/realtime     # 16 bit, mono

A connection that is lost is taken up again within 30 s: no word is lost, and none comes twice.
"""

import argparse
import asyncio
import base64
import json
import os
import sys
import wave
from collections import deque

import websockets

CHUNK_S = 0.1
RATES = (8_000, 16_000, 24_000)
KEPT = round(60 / CHUNK_S)  # events that the server may not have had when the connection was lost
LAST = "last"  # a second commit finds nothing to commit: its error comes after all turns have begun
WORDS = "conversation.item.input_audio_transcription"


class Refused(Exception):
    """What the server says of it."""


async def from_file(path):
    """Bytes of 16-bit samples, when they would have been spoken."""
    with wave.open(path) as file:
        if (file.getnchannels(), file.getsampwidth()) != (1, 2) or file.getframerate() not in RATES:
            raise wave.Error(f"{path}: 16 bit, mono, 8, 16 or 24 kHz is needed")
        yield file.getframerate()
        loop = asyncio.get_running_loop()
        due = loop.time()
        while data := file.readframes(round(file.getframerate() * CHUNK_S)):
            due += CHUNK_S
            await asyncio.sleep(due - loop.time())
            yield data


async def from_microphone():
    import sounddevice

    loop, heard = asyncio.get_running_loop(), asyncio.Queue()

    def take(data, frames, time, status):
        loop.call_soon_threadsafe(heard.put_nowait, bytes(data))

    rate = RATES[-1]
    with sounddevice.RawInputStream(rate, round(rate * CHUNK_S), dtype="int16", channels=1, callback=take):
        yield rate
        while True:
            yield await heard.get()


class Session:
    """A session that outlives its connections: what was sent lately is kept, and counted."""

    def __init__(self, url, key):
        self.url, self.headers = url, {"authorization": f"Bearer {key}"} if key else {}
        self.query, self.last = "intent=transcription", "event_0"
        self.sent, self.kept = 0, deque(maxlen=KEPT)
        self.ready, self.socket = asyncio.Event(), None
        self.over, self.turns = False, set()

    async def send(self, **event):
        await self.ready.wait()
        self.kept.append(json.dumps(event))
        self.sent += 1
        try:
            await self.socket.send(self.kept[-1])
        except websockets.ConnectionClosed:  # it is sent again over the next one
            self.ready.clear()

    async def run(self):
        """Prints the words; connects again where the connection is lost. Returns after the last turn."""
        while True:
            try:
                url = f"{self.url}?{self.query}"
                async with websockets.connect(url, additional_headers=self.headers) as socket:
                    async for message in socket:
                        if await self.take(socket, json.loads(message)):
                            return
                    return  # the server has closed it in order
            except websockets.ConnectionClosed as lost:
                self.ready.clear()
                if lost.rcvd is not None:
                    raise
                print(" [connecting again]", file=sys.stderr)

    async def take(self, socket, event):
        """Handles one event; True after the last."""
        kind = event["type"]
        self.last = event.get("event_id", self.last)
        if kind == "session.created":
            self.query = f"session={event['session']['id']}"
        if kind == "session.resumed":
            for missing in list(self.kept)[len(self.kept) - (self.sent - event["received"]) :]:
                await socket.send(missing)
        if kind in ("session.created", "session.resumed"):
            self.socket = socket
            self.ready.set()
        elif kind == f"{WORDS}.delta":
            print(event["delta"], end="", flush=True)
        elif kind == "input_audio_buffer.committed":
            self.turns.add(event["item_id"])
        elif kind == f"{WORDS}.completed":
            self.turns.discard(event["item_id"])
            print(flush=True)
        elif kind == "error" and event["error"]["code"] == "input_audio_buffer_commit_empty":
            self.over = event["error"]["event_id"] == LAST
        elif kind == "error":
            raise Refused(event["error"]["message"])
        self.query = f"{self.query.split('&')[0]}&after={self.last}"
        return self.over and not self.turns


async def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", nargs="?", help="16-bit mono WAV; the microphone without it")
    parser.add_argument("--url", default="ws://127.0.0.1:8080/v1/realtime")
    parser.add_argument("--language", help="as en; found out otherwise")
    args = parser.parse_args()
    session = Session(args.url, os.environ.get("OPENAI_API_KEY", ""))
    showing = asyncio.ensure_future(session.run())

    async def speak():
        audio = from_file(args.file) if args.file else from_microphone()
        asked = {"format": {"type": "audio/pcm", "rate": await anext(audio)}}
        asked["transcription"] = {"model": "speech", "language": args.language}
        settings = {"type": "transcription", "audio": {"input": asked}}
        await session.send(type="session.update", session=settings)
        async for data in audio:
            await session.send(type="input_audio_buffer.append", audio=base64.b64encode(data).decode())
        await session.send(type="input_audio_buffer.commit")
        await session.send(type="input_audio_buffer.commit", event_id=LAST)

    speaking = asyncio.ensure_future(speak())
    await asyncio.wait((showing, speaking), return_when=asyncio.FIRST_COMPLETED)
    if speaking.done():
        speaking.result()
    await showing
    speaking.cancel()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        pass
    except (Refused, OSError, EOFError, wave.Error, websockets.WebSocketException) as error:
        sys.exit(f"{error}")
