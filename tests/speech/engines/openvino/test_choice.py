"""Which parts of a CTranslate2 artefact OpenVINO runs, and which windows its decoder gets."""

from __future__ import annotations

import json
import shutil
import struct
import sys
from dataclasses import replace

import numpy as np
import pytest

from tests.speech.engines.openvino.conftest import settings
from tests.speech.whisper.checkpoints import sound
from trimodal.errors import ArtefactError, SettingsError
from trimodal.manifest import read_manifest
from trimodal.speech.engines.openvino import engine as opening
from trimodal.speech.engines.openvino.encoder import Encoder
from trimodal.speech.engines.protocol import open_engine
from trimodal.speech.values import Window
from trimodal.speech.whisper.artefact import read_shapes, read_tokens

pytestmark = [pytest.mark.build, pytest.mark.filterwarnings("ignore")]


def chosen(directory, monkeypatch, *, tiles, precision="int8", **changed):
    """Whether encoder and decoder are OpenVINO's."""
    monkeypatch.setattr(opening, "has_tiles", lambda: tiles)
    manifest = read_manifest(directory, task="speech", runtime="ctranslate2")
    shapes = read_shapes(directory, manifest)
    tokens = read_tokens(directory, manifest, shapes, multilingual=True)
    described = manifest.model_copy(update={"precision": precision})
    parts = opening.open_parts(directory, described, settings(**changed), tokens, shapes, None)
    return [part is not None for part in parts]


@pytest.mark.parametrize(
    ("tiles", "changed", "parts"),
    [
        (True, {}, [True, True]),
        (True, {"precision": "int8_float16"}, [True, True]),
        (True, {"precision": "float32"}, [False, False]),
        (True, {"device": "cuda"}, [False, False]),
        (False, {}, [False, False]),
        (True, {"beam_size": 5}, [True, False]),
        (True, {"encoder": "ctranslate2"}, [False, False]),
        (True, {"decoder": "ctranslate2"}, [True, False]),
        (False, {"encoder": "openvino", "precision": "float32"}, [True, False]),
        (False, {"decoder": "openvino", "precision": "float32"}, [False, True]),
    ],
)
def test_which_parts_are_taken(artefact, monkeypatch, tiles, changed, parts):
    assert chosen(artefact, monkeypatch, tiles=tiles, **changed) == parts


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"encoder": "openvino", "device": "cuda"}, "'encoder'.*cpu only"),
        ({"decoder": "openvino", "device": "cuda"}, "'decoder'.*cpu only"),
        ({"decoder": "openvino", "beam_size": 5}, "'beam_size'.*1 only"),
    ],
)
def test_what_does_not_go_together_is_told_by_name(artefact, monkeypatch, changed, told):
    with pytest.raises(SettingsError, match=told):
        chosen(artefact, monkeypatch, tiles=True, **changed)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (struct.pack("<I", 7), "layout is 7"),
        (struct.pack("<IH", 6, 300) + b"cut short", "damaged"),
        (struct.pack("<IH16sIII", 6, 16, b"TransformerSpec\0", 3, 0, 0), "no Whisper"),
    ],
)
def test_weights_that_it_cannot_read_are_ctranslate2s_unless_it_is_asked_for(
    artefact, tmp_path, monkeypatch, caplog, content, told
):
    shutil.copytree(artefact, tmp_path / "other")
    (tmp_path / "other" / "model.bin").write_bytes(content)
    with pytest.raises(ArtefactError, match=told):
        chosen(tmp_path / "other", monkeypatch, tiles=True, encoder="openvino")
    assert not caplog.messages
    assert chosen(tmp_path / "other", monkeypatch, tiles=True) == [False, False]
    assert told in caplog.text


def test_an_installation_without_openvino_has_ctranslate2_alone(artefact, monkeypatch, caplog):
    names = [name for name in sys.modules if name.split(".")[0] == "openvino"]
    for name in (*names, "trimodal.speech.engines.openvino.loop"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "openvino", None)
    assert chosen(artefact, monkeypatch, tiles=True) == [False, False]
    assert "OpenVINO cannot" in caplog.text
    with pytest.raises(ArtefactError, match="openvino"):
        chosen(artefact, monkeypatch, tiles=False, decoder="openvino")


def test_without_alignment_heads_all_of_the_later_layers_are_taken(artefact, engines, tmp_path):
    shutil.copytree(artefact, tmp_path / "bare")
    config = json.loads((tmp_path / "bare" / "config.json").read_text())
    assert config["alignment_heads"] == [[1, 0], [1, 1]], "all of the later half, so that words are the same"
    kept = {name: value for name, value in config.items() if name not in ("alignment_heads", "suppress_ids")}
    (tmp_path / "bare" / "config.json").write_text(json.dumps(kept))
    engine = open_engine(tmp_path / "bare", settings(encoder="openvino", decoder="openvino"))
    window = Window(sound(4, 3), "en", draft=" what is")
    assert engine.recognise([window]) == engines[1].recognise([window])
    engine.close()


def test_windows_of_which_some_text_is_known_go_to_the_decoder_in_their_order(engines, monkeypatch):
    engine, seen = engines[1], []
    recognise = engine._decoder.recognise

    def noted(windows):
        seen.extend(windows)
        return recognise(windows)

    monkeypatch.setattr(engine._decoder, "recognise", noted)
    plain = [Window(sound(seconds, seed), "en") for seed, seconds in enumerate([1, 2, 3, 4])]
    mixed = [plain[0], replace(plain[1], prefix=" what"), plain[2], replace(plain[3], draft=" is")]
    heard = engine.recognise(mixed)
    assert seen == [mixed[1], mixed[3]]
    assert [one.text for one in heard] == [engine.recognise([one])[0].text for one in mixed]
    assert heard[1].text.startswith(" what")
    seen.clear()
    assert len(engine.recognise(mixed, 0.4)) == 4
    engine.recognise(plain)
    assert not seen, "drawn texts, and those of which nothing is known, are CTranslate2's"


def test_its_own_encoder_may_stand_before_openvinos_decoder(artefact, engines):
    engine = open_engine(artefact, settings(encoder="ctranslate2", decoder="openvino"))
    window = Window(sound(4, 3), "en", draft=" what is")
    assert not isinstance(engine._encoder, Encoder)
    assert engine.recognise([window])[0].text == engines[1].recognise([window])[0].text
    features = np.zeros((1, 80, 200), np.float32)
    np.testing.assert_array_equal(engine.encode(features), engines[0].encode(features))
    engine.close()
