"""Correct repositories in the shapes that public ones have: none of them may be blamed."""

from __future__ import annotations

_LICENCE = "# Copyright of somebody\n#\n# All rights reserved; ${not_a_placeholder} in a comment\n"

CLASSIFIER = {
    "densenet/config.pbtxt": _LICENCE
    + """name: "densenet"
platform: "onnxruntime_onnx"
max_batch_size : 0
input [
  { name: "data_0" data_type: TYPE_FP32 format: FORMAT_NCHW dims: [ 3, 224, 224 ]
    reshape { shape: [ 1, 3, 224, 224 ] } }
]
output [
  { name: "fc6_1" data_type: TYPE_FP32 dims: [ 1000 ] reshape { shape: [ 1, 1000, 1, 1 ] }
    label_filename: "labels.txt" }
]
""",
    "densenet/labels.txt": "cat\n",
    "densenet/1/model.onnx": "",
}
SEQUENCES = {
    "adder/config.pbtxt": """name: "adder"
backend: "onnxruntime"
max_batch_size: 8
sequence_batching {
  max_sequence_idle_microseconds: 5000000
  oldest { max_candidate_sequences: 8 preferred_batch_size: [ 4, 8 ] max_queue_delay_microseconds: 100 }
  control_input [
    { name: "START" control [ { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } ] },
    { name: "READY" control [ { kind: CONTROL_SEQUENCE_READY bool_false_true: [ false, true ] } ] },
    { name: "CORRID" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } ] }
  ]
  state [
    {
      input_name: "INPUT_STATE" output_name: "OUTPUT_STATE" data_type: TYPE_INT32 dims: [ -1 ]
      initial_state: { data_type: TYPE_INT32 dims: [ 1 ] zero_data: true name: "zero" }
    }
  ]
}
input [ { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
instance_group [ { kind: KIND_CPU count: 4 } ]
""",
    "adder/1/model.onnx": "",
    "loop/config.pbtxt": """backend: "mock"
sequence_batching { iterative_sequence: true }
input [ { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
""",
    "loop/1/anything": "",
}
_LIST = "  %s [ %s ]\n"
LANGUAGE_PIPELINE = {
    "preprocessing/config.pbtxt": """name: "preprocessing"
backend: "python"
max_batch_size: 64
input [
  { name: "QUERY" data_type: TYPE_STRING dims: [ 1 ] },
  { name: "REQUEST_OUTPUT_LEN" data_type: TYPE_INT32 dims: [ 1 ] },
  { name: "STOP_WORDS_DICT" data_type: TYPE_STRING dims: [ -1 ] optional: true }
]
output [
  { name: "INPUT_ID" data_type: TYPE_INT32 dims: [ -1 ] },
  { name: "REQUEST_INPUT_LEN" data_type: TYPE_INT32 dims: [ 1 ] }
]
parameters { key: "tokenizer_dir" value: { string_value: "/models/llama" } }
instance_group [ { count: 4 kind: KIND_CPU } ]
""",
    "preprocessing/1/model.py": """
import json
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.config = json.loads(args["model_config"])

    def execute(self, requests):
        responses = []
        for request in requests:
            responses.append(pb_utils.InferenceResponse(output_tensors=[]))
        return responses
""",
    "engine/config.pbtxt": """name: "engine"
backend: "tensorrtllm"
max_batch_size: 64
model_transaction_policy { decoupled: True }
dynamic_batching {
  preferred_batch_size: [ 64 ]
  max_queue_delay_microseconds: 0
  default_queue_policy: { max_queue_size: 0 }
}
input [
  { name: "input_ids" data_type: TYPE_INT32 dims: [ -1 ] allow_ragged_batch: true },
  { name: "input_lengths" data_type: TYPE_INT32 dims: [ 1 ] reshape: { shape: [ ] } }
]
output [ { name: "output_ids" data_type: TYPE_INT32 dims: [ -1, -1 ] } ]
instance_group [ { count: 1 kind : KIND_CPU } ]
parameters: { key: "gpt_model_type" value: { string_value: "inflight_fused_batching" } }
""",
    "engine/1/.gitkeep": "",
    "postprocessing/config.pbtxt": """name: "postprocessing"
backend: "python"
max_batch_size: 64
input [ { name: "TOKENS_BATCH" data_type: TYPE_INT32 dims: [ -1, -1 ] } ]
output [ { name: "OUTPUT" data_type: TYPE_STRING dims: [ -1 ] } ]
""",
    "postprocessing/1/model.py": """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.one(request) for request in requests]

    def one(self, request):
        return pb_utils.InferenceResponse([])
""",
    "ensemble/config.pbtxt": """name: "ensemble"
platform: "ensemble"
max_batch_size: 64
input [
  { name: "text_input" data_type: TYPE_STRING dims: [ 1 ] },
  { name: "max_tokens" data_type: TYPE_INT32 dims: [ 1 ] }
]
output [ { name: "text_output" data_type: TYPE_STRING dims: [ -1 ] } ]
ensemble_scheduling {
  step [
    {
      model_name: "preprocessing" model_version: -1
      input_map { key: "QUERY" value: "text_input" }
      input_map { key: "REQUEST_OUTPUT_LEN" value: "max_tokens" }
      output_map { key: "INPUT_ID" value: "_INPUT_ID" }
      output_map { key: "REQUEST_INPUT_LEN" value: "_REQUEST_INPUT_LEN" }
    },
    {
      model_name: "engine" model_version: -1
      input_map { key: "input_ids" value: "_INPUT_ID" }
      input_map { key: "input_lengths" value: "_REQUEST_INPUT_LEN" }
      output_map { key: "output_ids" value: "_TOKENS_BATCH" }
    },
    {
      model_name: "postprocessing" model_version: -1
      input_map { key: "TOKENS_BATCH" value: "_TOKENS_BATCH" }
      output_map { key: "OUTPUT" value: "text_output" }
    }
  ]
}
""",
    "ensemble/1/.gitkeep": "",
}
VLLM = {
    "llama/config.pbtxt": 'backend: "vllm"\ninstance_group [ { count: 1 kind: KIND_MODEL } ]\n',
    "llama/1/model.json": '{"model": "llama", "gpu_memory_utilization": 0.5}',
    # Nothing but a name: the backend's own files say the rest.
    "bare/config.pbtxt": 'name: "bare"\n',
    "bare/1/model.onnx": "",
    "model.identity/config.pbtxt": "",
    "model.identity/1/anything": "",
    # Completed by the backend from a TensorRT plan.
    "part/config.pbtxt": 'input [ { name: "INPUT0" data_type: TYPE_FP32 } ]\n',
    "part/1/model.plan": "",
}
_REPEAT = 'backend: "python"\nmodel_transaction_policy { decoupled: True }\n'
_IO = """input [ { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
"""
DECOUPLED = {
    "repeat/config.pbtxt": _REPEAT + _IO,
    "repeat/1/model.py": """
import threading
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            self.process(request)
        return None

    def process(self, request):
        thread = threading.Thread(target=self.respond, args=(request.get_response_sender(), 3))
        thread.daemon = True
        thread.start()

    def respond(self, sender, count):
        for _ in range(count):
            sender.send(pb_utils.InferenceResponse([]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
""",
}
PYTHON = {
    "asynchronous/config.pbtxt": 'backend: "python"\nmax_batch_size: 4\n' + _IO,
    "asynchronous/1/model.py": """
import asyncio
import time
import triton_python_backend_utils as pb_utils

try:
    import something_optional
except ImportError:
    something_optional = None


class TritonPythonModel:
    async def execute(self, requests):
        loop = asyncio.get_running_loop()

        def slow():
            time.sleep(0.1)

        await loop.run_in_executor(None, slow)
        asked = pb_utils.InferenceRequest(model_name="x", requested_output_names=["y"], inputs=[])
        await asyncio.gather(asked.async_exec(), asyncio.sleep(0))
        return [pb_utils.InferenceResponse([]) for _ in requests]

    def later(self):
        time.sleep(1)
""",
    "packed/config.pbtxt": """name: "packed"
backend: "python"
input [ { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
parameters: { key: "EXECUTION_ENV_PATH", value: { string_value: "$$TRITON_MODEL_DIRECTORY/env.tar.gz" } }
""",
    "packed/env.tar.gz": "",
    "packed/1/model.py": """
import torch_of_that_environment
import helpers

TritonPythonModel = helpers.make(torch_of_that_environment)
""",
    "packed/1/helpers.py": "",
    "completed/config.pbtxt": 'backend: "python"\n',
    "completed/1/model.py": """
class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "IN", "data_type": "TYPE_INT32", "dims": [1]})
        return config

    def execute(self, requests):
        return []
""",
    "uses_completed/config.pbtxt": """platform: "ensemble"
input [ { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
ensemble_scheduling { step [ { model_name: "completed" model_version: -1
  input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "OUT" } } ] }
""",
    "uses_completed/1/.gitkeep": "",
}
# A batching step beside one that sees the batch dimension as its own.
MIXED = {
    "batched/config.pbtxt": """backend: "pytorch"
max_batch_size: 8
input [ { name: "IN__0" data_type: TYPE_FP32 dims: [ 3, -1, -1 ] } ]
output [ { name: "OUT__0" data_type: TYPE_FP32 dims: [ 16 ] } ]
instance_group [ { kind: KIND_GPU count: 1 gpus: [ 0, 1 ]
  rate_limiter { resources [ { name: "R" count: 2 } ] priority: 2 } } ]
model_warmup [ { name: "one" batch_size: 1
  inputs { key: "IN__0" value { data_type: TYPE_FP32 dims: [ 3, 32, 32 ] random_data: true } } } ]
version_policy: { specific { versions: [ 2, 3 ] } }
""",
    "batched/1/model.pt": "",
    "batched/3/model.pt": "",
    "whole/config.pbtxt": """backend: "dali"
input [ { name: "FEATURES" data_type: TYPE_FP32 dims: [ -1, 16 ] } ]
output [ { name: "ANSWER" data_type: TYPE_FP32 dims: [ -1, 4 ] } ]
""",
    "whole/1/model.dali": "",
    "both/config.pbtxt": """platform: "ensemble"
max_batch_size: 8
input [ { name: "IMAGE" data_type: TYPE_FP32 dims: [ 3, 224, 224 ] } ]
output [ { name: "ANSWER" data_type: TYPE_FP32 dims: [ 4 ] },
  { name: "FEATURES" data_type: TYPE_FP32 dims: [ 16 ] } ]
ensemble_scheduling {
  step [
    { model_name: "whole" model_version: 1
      input_map { key: "FEATURES" value: "FEATURES" } output_map { key: "ANSWER" value: "ANSWER" } },
    { model_name: "batched" model_version: 3
      input_map { key: "IN__0" value: "IMAGE" } output_map { key: "OUT__0" value: "FEATURES" } }
  ]
}
""",
    "both/1/.gitkeep": "",
}
NOTATION = {
    "spelt/config.pbtxt": """backend: 'python', max_batch_size: 0x8;
input < name: "IN" data_type: 8 dims: 1 dims: 2 >
output: [ { name: "O" "UT" data_type: TYPE_INT32 dims: [ -1 ] } ]
dynamic_batching: { preferred_batch_size: 4, preferred_batch_size: 8 }
parameters { key: "quoted \\"#\\" \\x41" value { string_value: "{ [ < \\\\" } }
parameters { key: "a" value { string_value: "1" } } parameters { key: "a" value { string_value: "2" } }
""",
    "spelt/1/model.py": "class TritonPythonModel:\n    def execute(self, requests):\n        return []\n",
    "by_agent/config.pbtxt": 'model_repository_agents { agents [ { name: "relocation" } ] }\n',
}

SHAPES: dict[str, dict[str, str]] = {
    "classifier": CLASSIFIER,
    "sequences": SEQUENCES,
    "language pipeline": LANGUAGE_PIPELINE,
    "vllm and completed configs": VLLM,
    "decoupled": DECOUPLED,
    "python": PYTHON,
    "mixed": MIXED,
    "notation": NOTATION,
}
