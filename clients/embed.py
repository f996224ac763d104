"""How close two texts are in meaning: the cosine of their vectors.

pip install 'tritonclient[grpc]'
python clients/embed.py "a cat sleeps" "a kitten naps" --url 127.0.0.1:8001
"""

import argparse
import sys

import numpy as np
import tritonclient.grpc as triton


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("texts", nargs=2)
    parser.add_argument("--url", default="127.0.0.1:8001", help="host:port of Triton's gRPC endpoint")
    args = parser.parse_args()

    text_input = triton.InferInput("text_input", [2, 1], "BYTES")
    text_input.set_data_from_numpy(np.array([[text.encode()] for text in args.texts], dtype=object))
    try:
        with triton.InferenceServerClient(args.url) as client:
            one, other = client.infer("embedding", [text_input], client_timeout=60).as_numpy("embedding")
    except triton.InferenceServerException as error:
        print(error.message(), file=sys.stderr)
        return 1
    print(f"{one @ other:.4f}")  # the vectors have unit length
    return 0


if __name__ == "__main__":
    sys.exit(main())
