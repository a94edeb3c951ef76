"""Uploads: requests, tus, states, checks and cards."""
