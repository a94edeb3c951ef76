"""A bare asynchronous writer: rows that lie in memory already, sent with acsylla; a process of its own.

    python -m benchmarks.ingest.bare HOST PORT DATACENTER FOLDER

Reads all pictures of a folder, makes their rows, and says so by a line. Then, for each line of JSON on its input,
{"in_flight": N, "pictures": N, "batch": bool}, it writes that many and answers with {"seconds", "cpu", "bytes"}. Each
picture is two requests, the metadata row when the data row is acknowledged, or one batch of both.
"""

import asyncio
import json
import sys
import time

from benchmarks.harness.picture_rows import prepare, rows_below, write
from etl.cassandra.cluster import Cluster
from etl.cassandra.executor import writer


async def serve(cluster: Cluster, folder: str) -> None:
    """Load, then write as often as asked."""
    rows = rows_below(folder)
    async with writer(cluster) as connected:
        statements = await prepare(connected)
        session = connected._session  # connected as ours is, without what ours does around each write
        print(json.dumps({"pictures": len(rows)}), flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            order = json.loads(line)
            taken = rows[: order["pictures"]]
            started, cpu = time.monotonic(), time.process_time()
            await write(session, statements, taken, in_flight=order["in_flight"], batch=order["batch"])
            done = {"seconds": time.monotonic() - started, "cpu": time.process_time() - cpu}
            print(json.dumps({**done, "bytes": sum(len(data[-1]) for data, _ in taken)}), flush=True)


def main() -> int:
    """Serve until the input ends."""
    host, port, datacenter, folder = sys.argv[1:]
    asyncio.run(serve(Cluster((host,), int(port), datacenter), folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
