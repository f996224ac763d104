"""Asks the assistant over gRPC: text, perhaps an image and a recording. Ctrl-C stops it, on the server too.

pip install 'tritonclient[grpc]'
python clients/ask.py "What is the capital of Japan?" --image photo.jpg --url 127.0.0.1:8001
"""

import argparse
import pathlib
import queue
import sys
import wave

import numpy as np
import tritonclient.grpc as triton


def tensor(name, array, dtype):
    return triton.InferInput(name, array.shape, dtype).set_data_from_numpy(array)


def picture(path):
    """A file's bytes; of one without end, as a device, more than the server takes, which refuses it."""
    with path.open("rb") as file:
        return file.read(32 << 20)


def samples(path):
    """int16[n] at 16 kHz, of a WAV of any rate."""
    with wave.open(str(path)) as file:
        if file.getnchannels() != 1 or file.getsampwidth() != 2:
            raise ValueError(f"{path}: one channel of 16 bits is needed")
        said = np.frombuffer(file.readframes(file.getnframes()), "<i2")
        count = round(len(said) * 16_000 / file.getframerate())
    if count == len(said):
        return said
    resampled = np.fft.irfft(np.fft.rfft(said)[: count // 2 + 1], count) * count / len(said)
    return resampled.round().clip(-32768, 32767).astype(np.int16)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("text", nargs="?", help="the question; or a recording has it")
    parser.add_argument("--image", type=pathlib.Path, help="a picture file")
    parser.add_argument("--audio", type=pathlib.Path, help="WAV file: one channel, 16 bits")
    parser.add_argument("--url", default="127.0.0.1:8001", help="host:port of Triton's gRPC endpoint")
    parser.add_argument("--timeout", type=float, default=60.0, help="longest silence, seconds")
    args = parser.parse_args()

    responses = queue.Queue()
    client, over = triton.InferenceServerClient(args.url), False
    try:
        inputs = [tensor("text_input", np.array([args.text.encode()], object), "BYTES")] if args.text else []
        if args.image:
            inputs.append(tensor("image", np.array([picture(args.image)], object), "BYTES"))
        if args.audio:
            inputs.append(tensor("audio_int16", samples(args.audio), "INT16"))
        client.is_server_ready(client_timeout=5)  # fails at once where no server answers
        client.start_stream(lambda result, error: responses.put((result, error)))
        client.async_stream_infer("assistant", inputs, enable_empty_final_response=True)
        while True:
            result, error = responses.get(timeout=args.timeout)
            over = error is not None
            if error:
                raise error
            stage, text = (result.as_numpy(name)[0].decode() for name in ("stage", "text_output"))
            if stage == "heard":
                print(f"heard: {text}", file=sys.stderr)
            elif stage == "saw":
                best, score = result.as_numpy("labels")[0].decode(), result.as_numpy("scores")[0]
                print(f"saw: {best} ({score:.2f})", file=sys.stderr)
            else:
                over = bool(result.as_numpy("finish_reason")[0])
                print(text, end="", flush=True)
                if over:
                    print(f"\n{result.as_numpy('timing')[0].decode()}", file=sys.stderr)
                    return 0
    except (KeyboardInterrupt, BrokenPipeError):
        print("\n[cancelled]", file=sys.stderr)
        return 130
    except (triton.InferenceServerException, queue.Empty, OSError, ValueError, EOFError, wave.Error) as error:
        print(f"\n{error!s}" if str(error) else f"\nsilent for {args.timeout:g} s", file=sys.stderr)
        return 1
    finally:
        # Triton (2.51) may keep a request for good that is cancelled while it completes.
        client.stop_stream(cancel_requests=not over)
        client.close()


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")
    sys.exit(main())
