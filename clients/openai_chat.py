"""Streams an answer with OpenAI's package through `trimodal gateway`. Ctrl-C stops it, on the server too.

Where the gateway asks for a key, OPENAI_API_KEY has it.

pip install openai
python clients/openai_chat.py "What is the capital of Japan?" --url http://127.0.0.1:8080/v1
"""

import argparse
import os
import sys
import time

import openai


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("text", help="the question")
    parser.add_argument("--url", default="http://127.0.0.1:8080/v1", help="the gateway's, with /v1")
    parser.add_argument("--max-tokens", type=int, default=256)
    args = parser.parse_args()

    client = openai.OpenAI(base_url=args.url, api_key=os.environ.get("OPENAI_API_KEY", "none"))
    began, first, usage = time.perf_counter(), None, None
    try:
        stream = client.chat.completions.create(
            model="llm",
            messages=[{"role": "user", "content": args.text}],
            max_tokens=args.max_tokens,
            stream=True,
            stream_options={"include_usage": True},
        )
        for chunk in stream:
            usage = chunk.usage or usage
            text = chunk.choices[0].delta.content if chunk.choices else None
            if text:
                first = first or time.perf_counter() - began
                print(text, end="", flush=True)
    except (KeyboardInterrupt, BrokenPipeError):
        sys.exit("\nstopped")
    except openai.OpenAIError as error:
        sys.exit(f"\nopenai_chat.py: {error}")
    print()
    if first and usage:
        print(f"first text after {1000 * first:.0f} ms, {usage.completion_tokens} tokens", file=sys.stderr)


if __name__ == "__main__":
    main()
