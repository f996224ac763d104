"""Live speech: sessions that turn chunks of audio into words, and the batched recogniser behind them."""
