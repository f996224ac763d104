"""Streams a WAV file as if it were spoken now, and shows the words as they are heard.

pip install 'tritonclient[grpc]'
python clients/transcribe_live.py talk.wav --url 127.0.0.1:8001       # 16 bit, mono
arecord -q -t raw -f S16_LE -r 16000 | python clients/transcribe_live.py -   # a microphone
"""

import argparse
import secrets
import sys
import time
import wave

import numpy as np
import tritonclient.grpc as triton

RATE, CHUNK = 16_000, 1_600  # samples a second and a chunk (100 ms)


def chunks(path):
    """int16[n] as it would be spoken."""
    if path == "-":
        while data := sys.stdin.buffer.read(CHUNK * 2):
            yield np.frombuffer(data[: len(data) // 2 * 2], np.int16)
        return
    with wave.open(path) as file:
        if (file.getnchannels(), file.getsampwidth()) != (1, 2):
            raise wave.Error(f"{path}: 16 bit, mono is needed")
        said = np.frombuffer(file.readframes(file.getnframes()), np.int16)
    if (count := round(len(said) * RATE / file.getframerate())) != len(said):  # another rate
        said = np.fft.irfft(np.fft.rfft(said)[: count // 2 + 1], count) * count / len(said)
        said = said.round().clip(-32768, 32767).astype(np.int16)
    began = time.monotonic()
    for at in range(0, len(said), CHUNK):
        time.sleep(max(0, began + (at + CHUNK) / RATE - time.monotonic()))
        yield said[at : at + CHUNK]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", help="16-bit mono WAV; - is 16 kHz without a header on stdin")
    parser.add_argument("--policy", help="edge, vad or file")
    parser.add_argument("--url", default="127.0.0.1:8001", help="host:port of Triton's gRPC endpoint")
    parser.add_argument("--timeout", type=float, default=60.0, help="longest wait for an answer, seconds")
    args, started = parser.parse_args(), False
    stream = secrets.randbelow((1 << 63) - 1) + 1  # tritonclient takes ids below 2^63; 0 is none

    def send(samples, end=False):
        nonlocal started
        inputs = [] if samples is None else [triton.InferInput("audio_int16", [1, len(samples)], "INT16")]
        for audio in inputs:
            audio.set_data_from_numpy(samples.reshape(1, -1))
        control = {"sequence_id": stream, "sequence_start": not started, "sequence_end": end}
        options = {"policy": args.policy} if args.policy and not started else None
        started = True
        answer = client.infer("speech", inputs, client_timeout=args.timeout, parameters=options, **control)
        # `tentative` is the guess of what follows; `corrections` tell what was heard otherwise in the end.
        print(answer.as_numpy("committed").item().decode(), end="\n" if end else "", flush=True)

    with triton.InferenceServerClient(args.url) as client:
        last = None
        try:
            try:
                for samples in chunks(args.file):
                    if len(samples) == CHUNK:
                        send(samples)
                    else:  # the last one; with END it may be shorter than 20 ms
                        last = samples
            except KeyboardInterrupt:
                print(" [ended]", file=sys.stderr)
            if started or last is not None:
                send(last, end=True)  # waits until all of it is heard
        except (triton.InferenceServerException, OSError, EOFError, wave.Error) as error:
            sys.exit(f"\n{error}")


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")
    main()
