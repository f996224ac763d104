"""The rules: id, severity, what is wrong and what to do. docs/check.md has the same table.

Ids are not given again once they were used: 00x the file itself, 01x and 02x one model, 03x batching,
04x sequences, 05x and 06x ensembles, 07x profiles, 08x knobs, 09x engines, 11x Python models, 12x the
server's command line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trimodal.check.findings import Rule
from trimodal.report.findings import Severity

# Id → what is wrong, and what to do.
_Table = Mapping[str, tuple[str, str]]
# Errors for which the server does not load a model.
_REFUSED: _Table = {
    # the file
    "TRI001": ("the file is no valid model configuration", "correct the line that is named"),
    "TRI002": (
        "a field that model configurations do not have, or not there",
        "correct the name, or move the field to the message that has it",
    ),
    "TRI003": (
        "a field that this version of the server does not know",
        "take it out, or serve with a newer Triton (--triton-version says which one is checked for)",
    ),
    "TRI004": ("a placeholder such as ${…} was not filled in", "fill the template before it is served"),
    # one model
    "TRI010": ("name is not the folder's name", "name it like its folder, or leave name out"),
    "TRI011": (
        "neither backend nor platform is named, and no model file tells it",
        'add backend: "python", or the one that runs it',
    ),
    "TRI012": ("backend and platform contradict each other", "leave platform out"),
    "TRI013": (
        "an ensemble needs both platform ensemble and ensemble_scheduling, and no backend",
        'write platform: "ensemble" and ensemble_scheduling, without a backend',
    ),
    "TRI014": (
        "there is no version folder to load",
        "make one, as 1/; in git, an empty one needs a file such as .gitkeep",
    ),
    "TRI015": ("max_batch_size is negative", "0 means that the model does not batch"),
    "TRI016": (
        "an input or output lacks its name, data_type or dims",
        "write all three; [ 1 ] are the dims of one value",
    ),
    "TRI017": ("a dimension is neither positive nor -1", "write -1 for any size"),
    "TRI018": (
        "reshape does not hold as many elements as dims",
        "make both hold the same number of elements",
    ),
    "TRI019": (
        "format, is_shape_tensor or is_non_linear_format_io does not fit the tensor or the backend",
        "images of FORMAT_NCHW and FORMAT_NHWC have 3 dims; the other two are TensorRT's alone",
    ),
    "TRI020": (
        "batch_input or batch_output is not as the server takes it",
        "name one known input as source_input; data_type of batch_input is TYPE_INT32 or TYPE_FP32",
    ),
    "TRI021": ("label_filename names no file", "put the file beside config.pbtxt"),
    "TRI022": (
        "response_cache with decoupled responses or sequences",
        "take response_cache out; caches in front of the server can hold streams",
    ),
    "TRI023": (
        "an instance_group names GPUs or profiles that its kind or backend cannot have",
        "gpus belong to KIND_GPU, profile to TensorRT's backend",
    ),
    "TRI024": (
        "a sample of model_warmup cannot be made",
        "name each input that is not optional, with its data_type, dims without -1, and zero_data, "
        "random_data or a file in warmup/",
    ),
    "TRI028": ("FORCE_CPU_ONLY_INPUT_TENSORS is neither yes nor no", 'write "yes" or "no"'),
    # batching
    "TRI030": (
        "a preferred batch size is above max_batch_size or not positive",
        "lower it, or raise max_batch_size",
    ),
    "TRI031": (
        "priority levels do not fit each other",
        "set default_priority_level from 1 to priority_levels, and policies for those levels alone",
    ),
    "TRI032": (
        "preserve_ordering beside several priorities or delayed requests",
        "take preserve_ordering out, or keep one priority and timeout_action REJECT",
    ),
    # sequences
    "TRI040": (
        "control_input is not as the server takes it",
        "one name for each, one kind once, and exactly one pair as int32_false_true: [ 0, 1 ]",
    ),
    "TRI041": ("minimum_slot_utilization is not between 0 and 1", "write a share, as 0.5"),
    "TRI044": (
        "the initial_state of a sequence's state cannot be made",
        "give it dims without -1, and put its data_file into initial_state/",
    ),
    # ensembles
    "TRI050": (
        "a step lacks its model, input_map or output_map, or there are no steps",
        "write model_name, input_map and output_map in each step",
    ),
    "TRI051": ("a step names a model that the repository lacks", "add that model, or correct the name"),
    "TRI052": ("a step maps a tensor that its model does not have", "correct the key"),
    "TRI053": ("an input of a step is not mapped, or twice", "map each input that is not optional once"),
    "TRI054": ("data types of an ensemble tensor do not match", "let writer and readers agree"),
    "TRI055": ("shapes of an ensemble tensor do not match", "let writer and readers agree"),
    "TRI056": ("an input of the ensemble goes to no step", "map it, or take it out"),
    "TRI057": ("a tensor is read that nothing before it writes", "map the output that makes it"),
    "TRI058": ("a step writes a tensor that nothing reads", "take it out of output_map"),
    "TRI059": ("a tensor is written twice", "give each output a tensor of its own"),
    "TRI060": ("ensembles contain each other", "break the circle"),
    "TRI061": (
        "a step takes smaller batches than the ensemble",
        "lower the ensemble's max_batch_size, or raise the step's",
    ),
    "TRI062": (
        "a step reads tensors of different decoupled models",
        "their responses have no pairs: join them in a model with BLS",
    ),
    "TRI063": (
        "instance_group, optimization or model_warmup on an ensemble",
        "move it to the models of the steps",
    ),
    "TRI064": ("a step wants a version that is not loaded", "-1 takes the newest"),
    # Python models
    "TRI110": ("a Python model has a syntax error", "correct it"),
    "TRI111": (
        "a Python model has no class TritonPythonModel",
        "define class TritonPythonModel with def execute(self, requests)",
    ),
}
# It loads, and breaks when it is used.
_ERRORS: _Table = {
    "TRI025": (
        "a Python model's file is missing: the server (2.51) never gets ready, and does not say why",
        "put it into the version folder",
    ),
    "TRI083": (
        "CUDA graphs beside output_copy_stream: clients get other clients' results",
        "take output_copy_stream out, or graphs",
    ),
    "TRI090": (
        "the built engine does not fit its manifest or the configuration",
        "build the engine again, with the command that is named",
    ),
    "TRI091": ("a batch size is outside the engine's profiles", "lower it, or build with a larger one"),
    "TRI092": ("a parameter is unknown to the model or malformed", "correct the parameter"),
    "TRI115": (
        "execute of a decoupled model returns responses, which the server refuses at every request",
        "send them by request.get_response_sender(), and return None",
    ),
    "TRI116": (
        "TritonPythonModel has no execute: the model loads, and each request fails",
        "define def execute(self, requests)",
    ),
}
# It may hurt.
_WARNINGS: _Table = {
    "TRI005": ("a placeholder such as ${…} stands in a value", "fill the template before it is served"),
    "TRI026": ("a tensor is named twice", "the server keeps one of them: take the other out"),
    "TRI034": ("requests wait longer for company than the SLO allows", "lower max_queue_delay_microseconds"),
    "TRI035": (
        "a queue timeout on a model with one instance: now and then it stalls for 500 ms",
        "take default_timeout_microseconds out, or run two instances",
    ),
    "TRI036": (
        "response_cache with dynamic_batching loses a queue slot with each hit before Triton 25.09",
        "serve with 25.09 or newer, or take one of the two out",
    ),
    "TRI043": (
        "text as correlation id with batched sequences fails when requests come in",
        "use TYPE_UINT64 for CONTROL_SEQUENCE_CORRID",
    ),
    "TRI065": (
        "max_queue_size on the step of an ensemble: before Triton 26.03 an overflow makes it hang",
        "take max_queue_size out of the step, and limit requests before the ensemble",
    ),
    "TRI070": (
        "profiles of a model show clients different tensors",
        "keep names, types and dims the same in all of the model's files",
    ),
    "TRI071": (
        "profiles of a model disagree on decoupled, sequences or whether it batches",
        "keep them the same: clients are written for one of them",
    ),
    "TRI080": ("more CPU instances than cores", "lower count, or give the machine more cores"),
    "TRI081": (
        "the models' files alone are larger than the GPU's memory",
        "lower count, build with fewer bits, or serve fewer models on this GPU",
    ),
    "TRI112": (
        "a module that a Python model imports is not installed here",
        "install it where the server runs, or run the checker there",
    ),
    "TRI113": (
        "a decoupled model can end a request without the FINAL flag: its client waits for ever",
        "send flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL on every path, after errors too",
    ),
    "TRI114": (
        "a call that blocks inside async execute stops all requests of the instance",
        "await its asynchronous twin, or run it in a thread",
    ),
    "TRI120": (
        "whoever reaches the server can load and unload models",
        "--model-control-mode=none, or restrict model-repository with --http-restricted-api and "
        "--grpc-restricted-protocol",
    ),
    "TRI121": (
        "whoever reaches the server can register its shared memory",
        "restrict shared-memory with --http-restricted-api and --grpc-restricted-protocol",
    ),
    "TRI122": (
        "the image of the server is older than its last fixes of known vulnerabilities (25.07)",
        "use a newer tag, or let nothing but the machine itself reach the server",
    ),
}
# Worth a look.
_NOTES: _Table = {
    "TRI027": ("the model's file is not there yet", "build or download it before the server starts"),
    "TRI033": (
        "dynamic_batching without a max_batch_size above 1 makes no batches",
        "set max_batch_size, or take dynamic_batching out",
    ),
    "TRI042": (
        "a sequence is dropped after 1 s of silence or less",
        "set max_sequence_idle_microseconds to the longest pause of a client",
    ),
    "TRI066": (
        "a client that cancels an ensemble does not end its decoupled step",
        "have clients call the decoupled model itself, or give it a way to be cancelled",
    ),
    "TRI082": (
        "no warm-up: the first requests pay for what the backend prepares",
        "add model_warmup with the sizes that clients send",
    ),
}


def _rules(table: _Table, severity: Severity, *, refused: bool = False) -> Iterator[Rule]:
    for rule, (title, fix) in table.items():
        yield Rule(rule, severity, title, fix, refused)


RULES: dict[str, Rule] = {
    rule.id: rule
    for rule in sorted(
        (
            *_rules(_REFUSED, "error", refused=True),
            *_rules(_ERRORS, "error"),
            *_rules(_WARNINGS, "warning"),
            *_rules(_NOTES, "note"),
        ),
        key=lambda rule: rule.id,
    )
}


def select_rules(select: tuple[str, ...], ignore: tuple[str, ...]) -> frozenset[str]:
    """Ids that are looked for, by ids or their beginnings. Raises: ValueError naming what matches none."""
    for prefix in (*select, *ignore):
        if not any(rule.startswith(prefix) for rule in RULES):
            raise ValueError(f"{prefix} is no rule: they are {min(RULES)} to {max(RULES)}, see docs/check.md")
    chosen = {rule for rule in RULES if not select or rule.startswith(select)}
    return frozenset(rule for rule in chosen if not (ignore and rule.startswith(ignore)))
