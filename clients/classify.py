"""Labels of image files or of the images in a folder, in batches over gRPC.

pip install 'tritonclient[grpc]'
python clients/classify.py photo.jpg folder/ --batch-size 16 --url 127.0.0.1:8001
"""

import argparse
import pathlib
import sys

import numpy as np
import tritonclient.grpc as triton

SUFFIXES = {".avif", ".bmp", ".gif", ".heic", ".heif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"}


def classify(client, images, timeout):
    """The best label of each image and its score."""
    files = np.array(images, dtype=object).reshape(-1, 1)
    image = triton.InferInput("image", files.shape, "BYTES").set_data_from_numpy(files)
    result = client.infer("vision", [image], client_timeout=timeout)
    labels, scores = result.as_numpy("labels"), result.as_numpy("scores")
    return [(label[0].decode(), float(score[0])) for label, score in zip(labels, scores, strict=True)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("paths", nargs="+", type=pathlib.Path)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--url", default="127.0.0.1:8001", help="host:port of Triton's gRPC endpoint")
    parser.add_argument("--timeout", type=float, default=60.0, help="longest wait for a batch, seconds")
    args = parser.parse_args()

    files = []
    for one in args.paths:
        files += sorted(f for f in one.iterdir() if f.suffix.lower() in SUFFIXES) if one.is_dir() else [one]
    failed = False
    with triton.InferenceServerClient(args.url) as client:
        batches = [files[at : at + args.batch_size] for at in range(0, len(files), args.batch_size)]
        while batches:
            batch = batches.pop(0)
            try:
                answers = classify(client, [file.read_bytes() for file in batch], args.timeout)
            except (triton.InferenceServerException, OSError) as error:
                if len(batch) > 1:  # one bad file must not hide the others
                    batches[:0] = [[file] for file in batch]
                    continue
                print(f"{batch[0]}: {error}", file=sys.stderr)
                failed = True
                continue
            for file, (label, score) in zip(batch, answers, strict=True):
                print(f"{file}\t{label}\t{score:.4f}", flush=True)
    return int(failed)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (KeyboardInterrupt, BrokenPipeError):  # as of `| head`
        sys.exit(130)
