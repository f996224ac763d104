"""Asks about a picture, aloud if you like, with OpenAI's package through `trimodal gateway`.

Where the gateway asks for a key, OPENAI_API_KEY has it.

pip install openai
python clients/openai_picture_and_voice.py --image photo.jpg --text "What is in this picture?"
python clients/openai_picture_and_voice.py --image photo.jpg --audio question.wav
"""

import argparse
import base64
import mimetypes
import os
import pathlib
import sys

import openai


def encoded(path):
    with path.open("rb") as file:  # of one without end, as a device, more than the gateway takes
        return base64.b64encode(file.read(32 << 20)).decode()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--text", help="the question; or a recording has it")
    parser.add_argument("--image", type=pathlib.Path, help="a picture file")
    parser.add_argument("--audio", type=pathlib.Path, help="wav, mp3, flac or ogg file")
    parser.add_argument("--url", default="http://127.0.0.1:8080/v1", help="the gateway's, with /v1")
    args = parser.parse_args()

    try:
        parts = [{"type": "text", "text": args.text}] if args.text else []
        if args.image:
            kind = mimetypes.guess_type(args.image)[0] or "image/jpeg"
            url = f"data:{kind};base64,{encoded(args.image)}"
            parts.append({"type": "image_url", "image_url": {"url": url}})
        if args.audio:
            audio = {"data": encoded(args.audio), "format": args.audio.suffix[1:].lower()}
            parts.append({"type": "input_audio", "input_audio": audio})
        client = openai.OpenAI(base_url=args.url, api_key=os.environ.get("OPENAI_API_KEY", "none"))
        stream = client.chat.completions.create(
            model="assistant", messages=[{"role": "user", "content": parts}], stream=True
        )
        for chunk in stream:
            delta = chunk.choices[0].delta
            if delta.role:  # the first chunk: what was heard and seen
                found = chunk.model_extra["trimodal"]
                if found["heard"]:
                    print("heard:", found["heard"], file=sys.stderr)
                for seen in found["labels"][:1]:
                    print(f"saw: {seen['label']} ({seen['score']:.2f})", file=sys.stderr)
            print(delta.content or "", end="", flush=True)
    except KeyboardInterrupt:
        sys.exit("\nstopped")
    except (OSError, openai.OpenAIError) as error:
        sys.exit(f"openai_picture_and_voice.py: {error}")
    print()


if __name__ == "__main__":
    main()
