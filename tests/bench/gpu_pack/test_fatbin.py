"""GPU code of other architectures is zeroed, and not one other byte is touched."""

import ctypes
import shutil
import subprocess

import pytest

from tests.bench.gpu_pack.libraries import CUBIN, PTX, container, elf
from trimodal.bench.gpu_pack.fatbin import PackError, strip

A, B, C, D = (letter * 16 for letter in (b"A", b"B", b"C", b"D"))


def stripped(tmp_path, sections, sm, **more):
    """The file's bytes afterwards, and what was told."""
    path = tmp_path / "lib.so"
    path.write_bytes(elf(sections, **more))
    before = path.read_bytes()
    found = strip(path, sm)
    after = path.read_bytes()
    assert len(after) == len(before)
    changed = [at for at in range(len(before)) if before[at] != after[at]]
    assert all(after[at] == 0 for at in changed)
    return after, found


def test_only_the_newest_code_that_the_gpu_runs_stays(tmp_path):
    code = container((CUBIN, 80, A), (CUBIN, 86, B), (CUBIN, 90, C), (PTX, 90, D))
    after, found = stripped(tmp_path, {".text": A, ".nv_fatbin": code}, 86)
    assert after.count(A) == 1  # the section .text
    assert B in after
    assert C not in after
    assert D not in after
    assert (found.kept, found.zeroed, found.containers, found.without) == (16, 48, 1, 0)


def test_code_of_the_same_generation_runs_on_a_newer_card_and_that_of_another_does_not(tmp_path):
    code = container((CUBIN, 75, A), (CUBIN, 80, B), (CUBIN, 90, C))
    after, _ = stripped(tmp_path, {".nv_fatbin": code}, 89)
    assert (A in after, B in after, C in after) == (False, True, False)


def test_both_variants_of_an_architecture_stay(tmp_path):
    code = container((CUBIN, 90, A), (CUBIN, 90, B), (CUBIN, 80, C))  # sm_90 and sm_90a
    after, _ = stripped(tmp_path, {".nv_fatbin": code}, 90)
    assert (A in after, B in after, C in after) == (True, True, False)


def test_without_machine_code_the_newest_ptx_stays(tmp_path):
    """ctranslate2 4.8.5 on Hopper: the driver compiles it."""
    code = container((PTX, 80, A), (PTX, 86, B), (CUBIN, 86, C), (PTX, 120, D))
    after, found = stripped(tmp_path, {"__nv_relfatbin": code}, 90)
    assert (A in after, B in after, C in after, D in after) == (False, True, False, False)
    assert found.without == 0


def test_what_no_card_of_that_kind_runs_is_told(tmp_path):
    code = container((CUBIN, 90, A)) + bytes(24) + container((CUBIN, 100, B))  # padding between them
    after, found = stripped(tmp_path, {".nv_fatbin": code}, 100)
    assert (A in after, B in after) == (False, True)
    assert (found.containers, found.without) == (2, 1)


def test_an_unknown_kind_of_entry_stays(tmp_path):
    code = container((CUBIN, 90, A), (8, 80, B))  # code for the linker
    after, _ = stripped(tmp_path, {".nv_fatbin": code}, 90)
    assert B in after


def test_debug_information_goes_where_the_loader_does_not_read_it(tmp_path):
    after, _ = stripped(tmp_path, {".debug_info": A, ".debug_loaded": B}, 90, loaded={".debug_loaded"})
    assert (A in after, B in after) == (False, True)


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (b"something else..", "no GPU code container"),
        (container((CUBIN, 80, A))[:-8], "no GPU code container"),  # longer than its section
        (container((CUBIN, 80, A)).replace(b"\x40\0\0\0", b"\x04\0\0\0"), "no entry of a GPU code container"),
        (container((CUBIN, 80, A)) + b"\x50\xed\x55\xba", "no GPU code container"),  # no room for a header
    ],
    ids=["text", "long", "entry", "end"],
)
def test_what_is_built_otherwise_is_refused_and_left_alone(tmp_path, code, sentence):
    path = tmp_path / "lib.so"
    path.write_bytes(elf({".nv_fatbin": container((CUBIN, 80, B)) + code}))
    before = path.read_bytes()
    with pytest.raises(PackError, match=rf"lib\.so: {sentence}"):
        strip(path, 90)
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"INPUT ( libx.so.1 )", b"\x7fELF\x01\x01\x01" + bytes(64)])
def test_what_is_no_elf_file_is_left_alone_or_refused(tmp_path, content):
    path = tmp_path / "lib.so"
    path.write_bytes(content)
    if content.startswith(b"\x7fELF"):
        with pytest.raises(PackError, match="64-bit"):
            strip(path, 90)
    else:
        assert strip(path, 90).containers == 0
    assert path.read_bytes() == content


@pytest.mark.skipif(not (shutil.which("gcc") or shutil.which("cc")), reason="no C compiler")
def test_the_loader_takes_the_library_afterwards(tmp_path):
    (tmp_path / "code.bin").write_bytes(container((CUBIN, 80, A), (CUBIN, 90, B)))
    (tmp_path / "lib.c").write_text(
        '__asm__(".section .nv_fatbin, \\"a\\"\\n.incbin \\"code.bin\\"\\n.text\\n");\n'
        "int answer(void) { return 42; }\n"
    )
    compiler = shutil.which("gcc") or shutil.which("cc")
    subprocess.run([compiler, "-shared", "-fPIC", "-g", "-o", "lib.so", "lib.c"], cwd=tmp_path, check=True)
    found = strip(tmp_path / "lib.so", 90)
    assert found.kept == 16
    assert found.zeroed > 16  # with debug information
    assert A not in (tmp_path / "lib.so").read_bytes()
    assert ctypes.CDLL(str(tmp_path / "lib.so")).answer() == 42
