"""Fault drills: jobs and epochs on three nodes and two Spark workers, while servers are killed, full or broken."""
