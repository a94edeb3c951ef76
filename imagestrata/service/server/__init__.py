"""HTTP: the app and its routes, admission, connections, responses and the server process."""
