import math

import pytest

from trimodal.bench.common.serving import metrics_page
from trimodal.bench.speech.figures import Work, parse_page, work_between
from trimodal.errors import ServerError
from trimodal.server import ports


def page(counts, total, seconds):
    """A page as Triton writes it: `counts` of batches up to 1, 2, 4 and more."""
    lines, below = ["# TYPE trimodal_speech_batch_size histogram"], 0
    for bound, count in zip(("1", "2", "4", "+Inf"), counts, strict=True):
        below += count
        lines.append(f'trimodal_speech_batch_size_bucket{{model="r",le="{bound}"}} {below}')
    lines += [f'trimodal_speech_batch_size_count{{model="r"}} {below}']
    lines += [f'trimodal_speech_batch_size_sum{{model="r"}} {total}']
    lines += [f'trimodal_speech_recognize_seconds_sum{{model="r"}} {seconds}']
    lines += ['nv_inference_count{model="speech"} 7', "trimodal_speech_active_streams 3"]
    return parse_page("\n".join(lines))


def test_what_happened_between_two_readings():
    before, after = page((5, 0, 1, 0), 9, 1.5), page((7, 2, 1, 0), 15, 2.25)
    assert work_between(before, after) == Work(windows=6, seconds=0.75, batch_mean=1.5, batch_most=2)


def test_batches_before_the_first_reading_do_not_count_for_the_largest():
    before, after = page((0, 0, 0, 9), 90, 9.0), page((1, 0, 0, 9), 91, 9.5)
    assert work_between(before, after).batch_most == 1
    assert work_between(before, page((0, 0, 0, 10), 100, 10.0)).batch_most == math.inf


def test_nothing_happened_or_nothing_was_ever_counted():
    one = page((1, 0, 0, 0), 1, 1.0)
    nothing = Work(windows=0, seconds=0, batch_mean=0, batch_most=0)
    assert work_between(one, one) == nothing
    assert work_between({}, {}) == nothing
    assert work_between({}, one) == Work(windows=1, seconds=1, batch_mean=1, batch_most=1)


def test_series_of_one_name_are_added_up():
    found = parse_page('trimodal_speech_x{a="1"} 2\ntrimodal_speech_x{a="2"} 3.5\ntrimodal_speech_y 1\n')
    assert found == {("trimodal_speech_x", None): 5.5, ("trimodal_speech_y", None): 1.0}


def test_a_page_that_does_not_answer_is_an_error_of_the_server():
    port = ports.choose("127.0.0.1", {"--http-port": 0})["--http-port"]
    with pytest.raises(ServerError, match="does not answer"):
        metrics_page(f"127.0.0.1:{port}")
