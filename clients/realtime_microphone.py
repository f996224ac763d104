"""Shows what is said into a microphone, or in a WAV file as if it were said now, over a WebSocket.

pip install websockets sounddevice                                    # sounddevice: for the microphone
python clients/realtime_microphone.py                                 # a microphone
python clients/realtime_microphone.py talk.wav --url ws://127.0.0.1:8080/v1/realtime     # 16 bit, mono
"""

import argparse
import asyncio
import base64
import json
import os
import sys
import wave

import websockets

CHUNK_S = 0.1
RATES = (8_000, 16_000, 24_000)
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


async def show(socket):
    """Prints the words as they come. Returns after the last turn."""
    over, turns = False, set()
    async for message in socket:
        event = json.loads(message)
        kind = event["type"]
        if kind == f"{WORDS}.delta":
            print(event["delta"], end="", flush=True)
        elif kind == "input_audio_buffer.committed":
            turns.add(event["item_id"])
        elif kind == f"{WORDS}.completed":
            turns.discard(event["item_id"])
            print(flush=True)
        elif kind == "error" and event["error"]["code"] == "input_audio_buffer_commit_empty":
            over = event["error"]["event_id"] == LAST
        elif kind == "error":
            raise Refused(event["error"]["message"])
        if over and not turns:
            return


async def speak(socket, args):
    async def send(**event):
        await socket.send(json.dumps(event))

    audio = from_file(args.file) if args.file else from_microphone()
    asked = {"format": {"type": "audio/pcm", "rate": await anext(audio)}}
    asked["transcription"] = {"model": "speech", "language": args.language}
    await send(type="session.update", session={"type": "transcription", "audio": {"input": asked}})
    async for data in audio:
        await send(type="input_audio_buffer.append", audio=base64.b64encode(data).decode())
    await send(type="input_audio_buffer.commit")
    await send(type="input_audio_buffer.commit", event_id=LAST)


async def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", nargs="?", help="16-bit mono WAV; the microphone without it")
    parser.add_argument("--url", default="ws://127.0.0.1:8080/v1/realtime")
    parser.add_argument("--language", help="as en; found out otherwise")
    args = parser.parse_args()
    key = os.environ.get("OPENAI_API_KEY", "")
    headers = {"authorization": f"Bearer {key}"} if key else {}
    url = f"{args.url}?intent=transcription"
    async with websockets.connect(url, additional_headers=headers) as socket:
        showing = asyncio.ensure_future(show(socket))
        speaking = asyncio.ensure_future(speak(socket, args))
        await asyncio.wait((showing, speaking), return_when=asyncio.FIRST_COMPLETED)
        if speaking.done() and not isinstance(speaking.exception(), websockets.ConnectionClosed):
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
