"""Damaged inputs of everything that reads files of others: each gives a result or an error of ours, in bounded time."""
