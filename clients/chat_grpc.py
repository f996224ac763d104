"""Streams an answer over gRPC. Ctrl-C stops it, on the server too.

pip install 'tritonclient[grpc]'
python clients/chat_grpc.py "What is the capital of Japan?" --max-tokens 64 --url 127.0.0.1:8001
"""

import argparse
import queue
import sys

import numpy as np
import tritonclient.grpc as triton


def tensor(name, values, dtype, numpy_type):
    array = np.array(values, dtype=numpy_type)
    return triton.InferInput(name, array.shape, dtype).set_data_from_numpy(array)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("prompt")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--url", default="127.0.0.1:8001", help="host:port of Triton's gRPC endpoint")
    parser.add_argument("--timeout", type=float, default=60.0, help="longest silence, seconds")
    args = parser.parse_args()

    prompt = tensor("text_input", [args.prompt.encode()], "BYTES", object)
    max_tokens = tensor("max_tokens", [args.max_tokens], "INT32", np.int32)
    responses = queue.Queue()
    client, over = triton.InferenceServerClient(args.url), False
    try:
        client.is_server_ready(client_timeout=5)  # fails at once where no server answers
        client.start_stream(lambda result, error: responses.put((result, error)))
        client.async_stream_infer("llm", [prompt, max_tokens], enable_empty_final_response=True)
        while True:
            result, error = responses.get(timeout=args.timeout)
            over = bool(error or result.as_numpy("finish_reason")[0])
            if error:
                raise error
            # Each response holds whole characters: the server never splits one.
            print(result.as_numpy("text_output")[0].decode(), end="", flush=True)
            if over:
                print(f"\n[{result.as_numpy('finish_reason')[0].decode()}]", file=sys.stderr)
                return 0
    except (KeyboardInterrupt, BrokenPipeError):
        print("\n[cancelled]", file=sys.stderr)
        return 130
    except (triton.InferenceServerException, queue.Empty) as error:
        print(f"\n{error!s}" if str(error) else f"\nsilent for {args.timeout:g} s", file=sys.stderr)
        return 1
    finally:
        # Triton (2.51) may keep a request for good that is cancelled while it completes.
        client.stop_stream(cancel_requests=not over)
        client.close()


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")
    sys.exit(main())
