"""Turns live audio into words: streams, windows, and the batched recogniser behind them."""
