"""Bodies on their way in: what a request asks for, tus, states, checks and cards."""
