"""Calls a gateway before the starter set as other packages do: `python calls.py URL`; each call is a line."""

# mypy: ignore-errors
from __future__ import annotations

import asyncio
import os
import sys

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it would fetch one

import instructor
import litellm
import openai
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel, Field
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

URL = f"{sys.argv[1]}/v1"
ASKED, TOLD, RAW = "What is the capital of Japan?", "Tell of Paris.", "The capital of Japan is"
WEATHER = "What is the weather in Paris?"
CHAT = [{"role": "user", "content": ASKED}]


class City(BaseModel):
    name: str = Field(max_length=20)
    large: bool


def weather(city: str) -> str:
    """Tells the weather of a city."""
    return f"sunny in {city}"


def langchain(**options):
    return ChatOpenAI(model="llm", base_url=URL, api_key="none", max_tokens=60, **options)


def langchain_tools():
    asked = HumanMessage(WEATHER)
    called = langchain().bind_tools([weather], tool_choice="required").invoke([asked])
    told = [ToolMessage("sunny", tool_call_id=call["id"]) for call in called.tool_calls]
    langchain().bind_tools([weather]).invoke([asked, called, *told])
    return called.tool_calls


def langchain_structured(method):
    return langchain().with_structured_output(City, method=method).invoke(TOLD)


def llama_index(chat=True):
    kind = {"is_chat_model": chat, "is_function_calling_model": chat}
    return OpenAILike(model="llm", api_base=URL, api_key="none", max_tokens=60, **kind)


def pydantic_ai(asked, **options):
    model = OpenAIChatModel("llm", provider=OpenAIProvider(base_url=URL, api_key="none"))
    return Agent(model, **options), asked, {"max_tokens": 100}


def pydantic_ai_whole(asked, **options):
    agent, asked, settings = pydantic_ai(asked, **options)
    return agent.run_sync(asked, model_settings=settings).output


async def pydantic_ai_stream():
    agent, asked, settings = pydantic_ai(ASKED)
    async with agent.run_stream(asked, model_settings=settings) as run:
        first = await run.get_output()
    again = await agent.run("And of Italy?", message_history=run.all_messages(), model_settings=settings)
    return first, again.output


def instructed(mode):
    client = instructor.from_openai(openai.OpenAI(base_url=URL, api_key="none"), mode=mode)
    asked = [{"role": "user", "content": TOLD}]
    return client.chat.completions.create(
        model="llm", messages=asked, response_model=City, max_tokens=100, temperature=0
    )


def lite(chat=CHAT, model="openai/llm", **options):
    answer = litellm.completion(model, chat, api_base=URL, api_key="none", max_tokens=60, **options)
    return answer if options.get("stream") else answer.choices[0].message


def lite_again():
    return lite([*CHAT, lite(), {"role": "user", "content": "And of Italy?"}])


def lite_stream():
    chunks = lite(stream=True, stream_options={"include_usage": True})
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


LITE = {"api_base": URL, "api_key": "none"}
CALLS = {
    "LangChain: invoke": lambda: langchain().invoke(ASKED).content,
    "LangChain: stream": lambda: "".join(part.content for part in langchain(stream_usage=True).stream(ASKED)),
    "LangChain: json_schema": lambda: langchain_structured("json_schema"),
    "LangChain: function_calling": lambda: langchain_structured("function_calling"),
    "LangChain: tools and their results": langchain_tools,
    "LangChain: n, logprobs": lambda: langchain(n=2, logprobs=True).generate([[HumanMessage(ASKED)]]),
    "LangChain: completion": lambda: OpenAI(model="llm", base_url=URL, api_key="none", max_tokens=8).invoke(
        RAW
    ),
    "LangChain: embeddings": lambda: OpenAIEmbeddings(
        model="embedding", base_url=URL, api_key="none", check_embedding_ctx_length=False
    ).embed_documents(["a", "b"]),
    "LlamaIndex: chat": lambda: llama_index().chat([ChatMessage(role="user", content=ASKED)]),
    "LlamaIndex: stream": lambda: list(llama_index().stream_chat([ChatMessage(role="user", content=ASKED)])),
    "LlamaIndex: completion": lambda: llama_index(chat=False).complete(RAW),
    "LlamaIndex: structured": lambda: llama_index().as_structured_llm(City).complete(TOLD),
    "LlamaIndex: tools": lambda: llama_index().predict_and_call(
        [FunctionTool.from_defaults(weather)], WEATHER, tool_required=True
    ),
    "LlamaIndex: embeddings": lambda: OpenAILikeEmbedding(
        model_name="embedding", api_base=URL, api_key="none"
    ).get_text_embedding("a"),
    "pydantic-ai: text": lambda: pydantic_ai_whole(ASKED),
    "pydantic-ai: tool output": lambda: pydantic_ai_whole(TOLD, output_type=City),
    "pydantic-ai: native output": lambda: pydantic_ai_whole(TOLD, output_type=NativeOutput(City)),
    "pydantic-ai: stream, a second turn": lambda: asyncio.run(pydantic_ai_stream()),
    "instructor: tools": lambda: instructed(instructor.Mode.TOOLS),
    "instructor: json_schema": lambda: instructed(instructor.Mode.JSON_SCHEMA),
    "LiteLLM: completion": lite,
    "LiteLLM: stream": lite_stream,
    "LiteLLM: its answer sent back": lambda: lite(
        [*CHAT, lite(), {"role": "user", "content": "And of Italy?"}]
    ),
    "LiteLLM: as vLLM": lambda: lite(model="hosted_vllm/llm", top_k=5),
    "LiteLLM: json_schema": lambda: lite([{"role": "user", "content": TOLD}], response_format=City),
    "LiteLLM: text completion": lambda: litellm.text_completion(
        model="text-completion-openai/llm", prompt=RAW, max_tokens=8, **LITE
    ),
    "LiteLLM: embedding": lambda: litellm.embedding("openai/embedding", input=["a"], **LITE),
    "LiteLLM: responses": lambda: litellm.responses(
        model="openai/llm", input=ASKED, max_output_tokens=40, **LITE
    ),
}

for name, call in CALLS.items():
    try:
        print("ok", name, str(call()).replace("\n", " ")[:100], flush=True)
    except Exception as error:
        print("FAILED", name, f"{type(error).__name__}: {error}"[:500].replace("\n", " "), flush=True)
