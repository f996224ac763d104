"""Streams an answer over HTTP: Triton's generate_stream, server-sent events. Needs only Python itself.

    python clients/chat_http.py "What is the capital of Japan?" --max-tokens 64 --url 127.0.0.1:8000

Ctrl-C closes the connection; the server notices when it next writes to it.
"""

import argparse
import http.client
import json
import sys


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("prompt")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--url", default="127.0.0.1:8000", help="host:port of Triton's HTTP endpoint")
    parser.add_argument("--timeout", type=float, default=60.0, help="longest silence, seconds")
    args = parser.parse_args()

    body = {"text_input": args.prompt, "max_tokens": args.max_tokens, "temperature": args.temperature}
    connection = http.client.HTTPConnection(args.url, timeout=args.timeout)
    try:
        connection.request("POST", "/v2/models/llm/generate_stream", json.dumps(body))
        response = connection.getresponse()
        last = None
        for line in response:
            # An event is one line, "data: {…}". An early refusal is plain JSON with an HTTP status.
            text = line.decode().removeprefix("data:").strip()
            if not text:
                continue
            event = json.loads(text)
            if "error" in event:
                print(f"\nHTTP {response.status}: {event['error']}", file=sys.stderr)
                return 1
            print(event["text_output"], end="", flush=True)
            if event["finish_reason"]:
                last = event  # the stream's end is read, too: to leave before it is to cancel
        if last:
            print(f"\n[{last['finish_reason']}, {last['completion_tokens']} tokens]", file=sys.stderr)
            return 0
        print("\nthe server ended the stream too early", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, BrokenPipeError):
        print("\n[cancelled]", file=sys.stderr)
        return 130
    except (OSError, http.client.HTTPException, ValueError) as error:
        print(f"\nno answer from {args.url}: {error!r}", file=sys.stderr)
        return 1
    finally:
        connection.close()


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")
    sys.exit(main())
