"""Chaos test: processes that write to one lake are killed, paused and disconnected, and a model replays every commit."""
