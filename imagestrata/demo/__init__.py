"""The demo: it ingests, splits and reads real pictures, and writes a report. `make demo` installs what it needs."""
