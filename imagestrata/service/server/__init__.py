"""HTTP: the app and its routes, admission, connections, answers and the process that serves."""
