"""Uses of vLLM, right ones and wrong ones: mypy reports a wrong one that it lets pass."""

from vllm import AsyncEngineArgs, SamplingParams
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.async_llm import AsyncLLM


async def serve(model: str) -> None:
    arguments = AsyncEngineArgs(model=model, max_num_seqs=8)
    AsyncEngineArgs(model=model, max_num_sequences=8)  # type: ignore[call-arg]
    AsyncEngineArgs(model=model, quantization="fp8", speculative_config={"method": "ngram"})
    AsyncEngineArgs(model=model, speculative_model="heads")  # type: ignore[call-arg]
    engine = AsyncLLM.from_engine_args(arguments)
    AsyncLLM(arguments)  # type: ignore[call-arg]
    sampling = SamplingParams(max_tokens=4, output_kind=RequestOutputKind.DELTA)
    SamplingParams(max_new_tokens=4)  # type: ignore[call-arg]
    async for output in engine.generate({"prompt_token_ids": [1]}, sampling, "1"):
        print(output.outputs[0].token_ids)
        print(output.outputs[0].delta)  # type: ignore[attr-defined]
    await engine.abort("1")
    await engine.cancel("1")  # type: ignore[attr-defined]
    engine.shutdown()
