import io
from dataclasses import replace

from rich.console import Console

from trimodal.bench.speech.figures import LiveFigures, print_live

ROW = LiveFigures(
    streams=4,
    refused=0,
    failed=0,
    words=200,
    wer=0.0312,
    offline_wer=0.0277,
    wer_to_offline=0.0123,
    lag_p50=0.714,
    lag_p95=1.336,
    lag_p99=10.75,
    server_lag_p95=1.25,
    growth=-0.31,
    flush=0.42,
    first_s=0.9,
    late_p99=0.0041,
    compute=0.0367,
    batch_mean=2.417,
    batch_most=8,
    windows_per_s=12.34,
    keeps_up=True,
)


def shown(*rows, width=80):
    out = io.StringIO()
    print_live("live streams", rows, Console(file=out, width=width))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_figures_stand_in_both_tables_within_a_terminal():
    lines = shown(("agreement", ROW))
    assert max(map(len, lines)) <= 80
    seen, cost = (line.split() for line in lines if line.strip().startswith("agreement "))
    assert seen == ["agreement", "4", "3.1", "2.8", "1.2", "0.71", "1.34", "10.75", "0.90", "yes"]
    assert cost == ["agreement", "4", "0.0367", "2.42", "8", "12.3", "1.25", "-0.31", "0.42", "0"]


def test_what_was_not_measured_is_left_out():
    row = replace(ROW, wer=None, offline_wer=None, wer_to_offline=None, lag_p50=None, first_s=None)
    (seen, _) = (line.split() for line in shown(("vad", row)) if line.strip().startswith("vad "))
    assert seen == ["vad", "4", "1.34", "10.75", "yes"]


def test_streams_that_were_refused_or_failed_are_counted():
    row = replace(ROW, refused=3, failed=1, keeps_up=False)
    seen, cost = (line.split() for line in shown(("live", row)) if line.strip().startswith("live   "))
    assert (seen[-1], cost[-1]) == ("no", "4")
