"""Python models, read and never imported: syntax, class, imports, blocking calls."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from trimodal.check.findings import Finding, Target
from trimodal.check.repository import Config
from trimodal.check.rules import RULES
from trimodal.check.source import SourcePosition

_GIVEN = ("triton_python_backend_utils", "c_python_backend_utils")  # by the server's stub
_BLOCKING = {
    "time.sleep": "asyncio.sleep",
    "os.system": "asyncio.create_subprocess_shell",
    "urllib.request.urlopen": "an asynchronous client",
    **{
        f"subprocess.{name}": "asyncio.create_subprocess_exec"
        for name in ("run", "call", "check_call", "check_output")
    },
    **{
        f"requests.{name}": "httpx.AsyncClient"
        for name in ("get", "post", "put", "patch", "delete", "head", "request")
    },
    **{
        f"httpx.{name}": "httpx.AsyncClient"
        for name in ("get", "post", "put", "patch", "delete", "head", "request")
    },
}


def check_python(config: Config, target: Target) -> Iterator[Finding]:
    if config.backend != "python":
        return
    for folder in config.loaded.values():
        file = folder / config.python_file
        if not file.is_file():
            file = config.directory / config.python_file
        if file.is_file():
            yield from _Module(config, file).findings()


class _Module:
    """One model.py."""

    def __init__(self, config: Config, file: Path) -> None:
        self.config, self.file = config, file

    def finding(self, rule: str, sentence: str, node: ast.AST | None = None) -> Finding:
        position = SourcePosition(getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1)
        return self.at(rule, sentence, position)

    def at(self, rule: str, sentence: str, position: SourcePosition) -> Finding:
        return RULES[rule].finding(self.file, position, sentence, model=self.config.model)

    def findings(self) -> Iterator[Finding]:
        try:
            tree = ast.parse(self.file.read_bytes())
        except SyntaxError as error:
            position = SourcePosition(error.lineno or 1, error.offset or 1)
            yield self.at("TRI110", f"Python says: {error.msg}", position)
            return
        except (RecursionError, MemoryError):  # what Python's parser raises of it
            yield self.finding("TRI110", "Python says: too many operators or brackets inside each other")
            return
        except ValueError as error:  # null bytes
            yield self.finding("TRI110", f"Python says: {error}")
            return
        yield from self._class(tree)
        if "EXECUTION_ENV_PATH" not in self.config.parameters:
            yield from self._imports(tree)
        names = _imported_names(tree)
        for model in ast.walk(tree):
            if isinstance(model, ast.ClassDef) and model.name == "TritonPythonModel":
                yield from self._blocking(model, names)
                if self.config.message.model_transaction_policy.decoupled:
                    yield from self._decoupled(model)
                else:
                    yield from self._returns(model)
        yield from self._tensors(tree)

    def _class(self, tree: ast.Module) -> Iterator[Finding]:
        bound = {name for node in tree.body for name in _bound(node)}
        if "TritonPythonModel" not in bound and "*" not in bound:
            yield self.finding("TRI111", f"{self.file.name} has no class TritonPythonModel")
            return
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.name == "TritonPythonModel" and not node.bases:
                members = {name for member in node.body for name in _bound(member)}
                if "execute" not in members and not node.decorator_list:
                    yield self.finding("TRI116", "TritonPythonModel has no execute", node)

    def _imports(self, tree: ast.Module) -> Iterator[Finding]:
        """Those that run when the model loads: at the top of the module, not under try or if."""
        beside = {path.stem for path in (*self.file.parent.iterdir(), *self.config.directory.iterdir())}
        for node in tree.body:
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                names = [node.module]
            for name in sorted({name.partition(".")[0] for name in names}):
                if name not in beside and name not in _GIVEN and not _exists(name):
                    yield self.finding("TRI112", f"{name} is not installed in {sys.prefix}", node)

    def _blocking(self, model: ast.ClassDef, names: dict[str, str]) -> Iterator[Finding]:
        for function in ast.walk(model):
            if isinstance(function, ast.AsyncFunctionDef):
                requests = _bls_requests(function, names)
                for call in (one for one in _own_nodes(function) if isinstance(one, ast.Call)):
                    dotted = _dotted(call.func, names)
                    if twin := _BLOCKING.get(dotted):
                        sentence = f"{dotted} in async {function.name} blocks: {twin} does not"
                        yield self.finding("TRI114", sentence, call)
                    elif isinstance(call.func, ast.Attribute) and call.func.attr == "exec":
                        owner = call.func.value
                        direct = isinstance(owner, ast.Call) and _dotted(owner.func, names) in _REQUESTS
                        if direct or (isinstance(owner, ast.Name) and owner.id in requests):
                            sentence = f"exec in async {function.name} blocks: await async_exec does not"
                            yield self.finding("TRI114", sentence, call)

    def _tensors(self, tree: ast.Module) -> Iterator[Finding]:
        """Names that are written out: inputs that are read, outputs of a response made on the spot."""
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            name = _last(node.func)
            if name == "get_input_tensor_by_name" and len(node.args) > 1:
                yield from self._declared("TRI117", "input", "reads", node.args[1])
            elif name == "InferenceResponse":
                given = [*node.args[:1], *(one.value for one in node.keywords if one.arg == "output_tensors")]
                for tensor in (one for each in given if isinstance(each, ast.List) for one in each.elts):
                    if isinstance(tensor, ast.Call) and _last(tensor.func) == "Tensor" and tensor.args:
                        yield from self._declared("TRI118", "output", "sends", tensor.args[0])

    def _declared(self, rule: str, kind: str, verb: str, name: ast.expr) -> Iterator[Finding]:
        known = {tensor.name for tensor in getattr(self.config.message, kind)}
        if kind == "input":  # what the server tells a model of a sequence comes as inputs, too
            batching = self.config.message.sequence_batching
            known |= {one.name for one in batching.control_input} | {one.input_name for one in batching.state}
            known |= {each for one in self.config.message.batch_input for each in one.target_name}
        else:
            known |= {one.output_name for one in self.config.message.sequence_batching.state}
        if (
            not (isinstance(name, ast.Constant) and isinstance(name.value, str))
            or name.value in known
            or self.config.completes(kind)
        ):
            return
        yield self.finding(
            rule, f"{self.file.name} {verb} {name.value}, which is no {kind} of the model", name
        )

    def _returns(self, model: ast.ClassDef) -> Iterator[Finding]:
        if any(
            isinstance(node, ast.Attribute) and node.attr == "get_response_sender" for node in ast.walk(model)
        ):
            return  # it sends, and returns nothing by right
        for function in model.body:
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) and function.name == "execute":
                nodes = list(_own_nodes(function))
                returns = [node for node in nodes if isinstance(node, ast.Return)]
                nothing = [one for one in returns if one.value is None or _is_none(one.value)]
                only_raises = isinstance(function.body[-1], ast.Raise)
                if not returns and not only_raises and not function.decorator_list:
                    yield self.finding("TRI119", "execute has no return", function)
                for one in nothing:
                    yield self.finding("TRI119", "execute returns None", one)

    def _decoupled(self, model: ast.ClassDef) -> Iterator[Finding]:
        for function in model.body:
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) and function.name == "execute":
                lists = _lists(function)
                for node in _own_nodes(function):
                    if isinstance(node, ast.Return) and (
                        isinstance(node.value, (ast.List, ast.ListComp))
                        or (isinstance(node.value, ast.Name) and node.value.id in lists)
                    ):
                        yield self.finding("TRI115", "execute returns a list, the model is decoupled", node)


_REQUESTS = tuple(f"{module}.InferenceRequest" for module in (*_GIVEN, "pb_utils"))


def _last(function: ast.expr) -> str:
    """The name of what is called, without where it is from."""
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def _exists(name: str) -> bool:
    if name in sys.builtin_module_names or name in sys.stdlib_module_names:
        return True
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _bound(node: ast.stmt) -> Iterator[str]:
    """Names that a statement defines, also inside if, try and with."""
    if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
        yield node.name
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from (alias.asname or alias.name for alias in node.names)
    elif isinstance(node, ast.Assign):
        yield from (target.id for target in node.targets if isinstance(target, ast.Name))
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id
    else:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                yield from _bound(child)
            elif isinstance(child, ast.ExceptHandler):
                for one in child.body:
                    yield from _bound(one)


def _imported_names(tree: ast.Module) -> dict[str, str]:
    """Local name → what it stands for: {"sleep": "time.sleep", "np": "numpy"}."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return found


def _dotted(node: ast.expr, names: dict[str, str]) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in names:
        return ""
    return ".".join((names[node.id], *reversed(parts)))


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """What a function itself runs: not the functions and classes that it defines."""
    left = list(ast.iter_child_nodes(function))
    while left:  # no recursion: each elif stands inside the one before it
        child = left.pop()
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            yield child
            left += ast.iter_child_nodes(child)


def _bls_requests(function: ast.AsyncFunctionDef, names: dict[str, str]) -> set[str]:
    """Names that hold a request to another model."""
    return {
        target.id
        for node in _own_nodes(function)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and _dotted(node.value.func, names) in _REQUESTS
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _lists(function: ast.AST) -> set[str]:
    """Names that the function only ever sets to a list."""
    lists: set[str] = set()
    others: set[str] = set()
    for node in _own_nodes(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    (lists if isinstance(node.value, (ast.List, ast.ListComp)) else others).add(target.id)
    return lists - others
